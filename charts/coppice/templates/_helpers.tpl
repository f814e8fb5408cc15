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

{{- define "coppice.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}
