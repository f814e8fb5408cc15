{{- define "coppice.labels" -}}
app.kubernetes.io/name: coppice
app.kubernetes.io/part-of: coppice
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "coppice.selector" -}}
app.kubernetes.io/component: operator
app.kubernetes.io/name: coppice
{{- end }}

{{- /* An image: its values, and the chart, whose version is its tag if the values have none. */ -}}
{{- define "coppice.image" -}}
{{- $image := index . 0 -}}
{{- $chart := (index . 1).Chart -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The seconds of a time such as 1h30m. */ -}}
{{- define "coppice.seconds" -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+[smh]" . -1 -}}
{{- $each := get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[smh]" .) -}}
{{- $seconds = add $seconds (mul $each (regexFind "[0-9]+" . | int64)) -}}
{{- end -}}
{{- $seconds -}}
{{- end }}
