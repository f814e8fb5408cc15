//! The chart: well-formed, strict about its values, and with default values the same installation as
//! `deploy/install.yaml`; an optional component that is switched on, as its file in `deploy/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::manifests::{self, Components, Install, components};
use crate::monitoring::ALERTS;
use crate::yaml;

const CHART: &str = "charts/coppice";
/// Labels and annotations that say which tool installed.
const TOOL: [&str; 5] = [
    "/metadata/labels/app.kubernetes.io~1managed-by",
    "/metadata/annotations/helm.sh~1resource-policy",
    "/metadata/annotations/helm.sh~1hook",
    "/metadata/annotations/helm.sh~1hook-weight",
    "/metadata/annotations/helm.sh~1hook-delete-policy",
];
/// Values that must be refused, each for one reason.
const BAD: [&str; 18] = [
    "replicas=two",
    "replicas=-1",
    "replica=2",
    "image.pullPolicy=Sometimes",
    "image.digest=latest",
    "crds.install=maybe",
    "crds.enabled=true",
    "logFormat=xml",
    "serviceMonitor.interval=30",
    "prometheusRule.enabled=maybe",
    "networkPolicy.metricsFrom=any",
    "rbac.aggregateToEdit=maybe",
    "wakeOnUninstall.wait=600",
    "access.releaseOnUninstall.wait=600",
    "access.releaseOnUninstall.credentials=maybe",
    "scaleKinds[0].kind=Rollout",
    "scaleKinds[0].apiVersion=*/v1,scaleKinds[0].kind=Any,scaleKinds[0].plural=any",
    "scaleKinds[0].apiVersion=argoproj.io/v1alpha1,scaleKinds[0].kind=Rollout,scaleKinds[0].plural=*",
];
/// Every option switched on.
const EVERYTHING: &str = "replicas=3,networkPolicy.enabled=true,serviceMonitor.enabled=true,serviceMonitor.labels.a=b,\
    prometheusRule.enabled=true,prometheusRule.labels.a=b,\
    webhooks.caConfigMap=authorities,concurrency=4,log=info,priorityClassName=high,podLabels.team=platform,podAnnotations.a=b,\
    nodeSelector.a=b,tolerations[0].operator=Exists,imagePullSecrets[0].name=pull,rbac.aggregateToEdit=true,\
    networkPolicy.metricsFrom[0].ipBlock.cidr=10.0.0.0/8,networkPolicy.probesFrom[0].ipBlock.cidr=10.1.0.0/16,wakeOnUninstall.wait=1h5m30s,\
    trees.enabled=true,access.enabled=true,access.releaseOnUninstall.credentials=revoke,access.releaseOnUninstall.wait=1m30s,scaleKinds[0].apiVersion=argoproj.io/v1alpha1,scaleKinds[0].kind=Rollout,scaleKinds[0].plural=rollouts";

/// What is wrong with the chart.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let helm = Helm { binary: coppice_plane::helm()?, chart: root.join(CHART) };
    let mut findings = version(root)?;
    findings.extend(helm.failure("helm lint --strict", &["lint", "--strict"])?);
    findings.extend(installed(&helm, components)?);
    for bad in BAD {
        findings.extend(passed(&helm, bad)?);
    }
    findings.extend(helm.failure("helm lint with every option", &["lint", "--strict", "--set", EVERYTHING])?);
    let everything = helm.template(&["--set", EVERYTHING])?;
    findings.extend(options(&everything));
    let alerts = std::fs::read_to_string(root.join(ALERTS)).with_context(|| format!("read {ALERTS}"))?;
    findings.extend(rules(&everything, &serde_yaml::from_str(&alerts).context(ALERTS)?));
    findings.extend(elsewhere(&helm.template(&[
        "--namespace",
        "platform",
        "--set",
        "trees.enabled=true",
    ])?));
    if !helm
        .template(&["--set", "crds.install=false"])?
        .iter()
        .all(|o| o["kind"] != "CustomResourceDefinition")
    {
        findings.push("crds.install=false still installs CRDs".to_owned());
    }
    for (value, kind) in [
        ("networkPolicy.enabled=false", "NetworkPolicy"),
        ("podDisruptionBudget.enabled=false", "PodDisruptionBudget"),
        ("wakeOnUninstall.enabled=false", "Job"),
        ("access.enabled=true,access.releaseOnUninstall.enabled=false,wakeOnUninstall.enabled=false", "Job"),
    ] {
        if helm
            .template(&["--set", &format!("trees.enabled=true,{value}")])?
            .iter()
            .any(|object| object["kind"] == kind)
        {
            findings.push(format!("{value} still installs a {kind}"));
        }
    }
    Ok(findings)
}

/// The chart's `PrometheusRule` has the alerts as they are, and the labels that were asked for.
fn rules(rendered: &[Value], alerts: &Value) -> Option<String> {
    let rule = rendered.iter().find(|object| name(object) == "PrometheusRule coppice");
    let right = rule.is_some_and(|rule| rule["spec"] == *alerts && rule["metadata"]["labels"]["a"] == "b");
    (!right).then(|| format!("the PrometheusRule of the chart does not have what {ALERTS} has"))
}

/// By default the chart installs what `deploy/install.yaml` does; with a component's switch also what its file does.
fn installed(helm: &Helm, components: Components) -> Result<Vec<String>> {
    let install = Install::kubectl();
    let components = components(&install);
    let plain = |objects: &[Value]| objects.iter().map(yaml::plain).collect::<Vec<_>>();
    let mut always = plain(&manifests::always(&install, &components)?);
    // Helm makes the namespace by itself (--create-namespace).
    let namespace = manifests::namespace(&install);
    always.retain(|object| *object != namespace);
    for component in components.iter().filter(|component| !component.optional) {
        // What is applied by hand, Helm runs by itself.
        always.extend(component.on_demand.iter().map(|(_, object)| yaml::plain(object)));
    }
    let rendered = helm.template(&[])?;
    let mut findings = differences(&always, &rendered);
    findings.extend(hooks(&rendered));
    for component in components.iter().filter(|component| component.optional) {
        let switch = format!("{}.enabled", component.name);
        let rendered = helm.template(&["--set", &format!("{switch}=true")])?;
        let on_demand = component.on_demand.iter().map(|(_, object)| yaml::plain(object)).collect();
        let expected = [always.clone(), plain(&component.objects(&install)), on_demand].concat();
        findings.extend(hooks(&rendered));
        findings
            .extend(differences(&expected, &rendered).into_iter().map(|text| format!("{switch}: {text}")));
        findings.extend(passed(helm, &format!("{switch}=maybe"))?);
    }
    Ok(findings)
}

/// A value that the schema had to refuse.
fn passed(helm: &Helm, bad: &str) -> Result<Option<String>> {
    let passes = helm.run("template", &["--set", bad])?.status.success();
    Ok(passes.then(|| format!("{CHART}/values.schema.json lets {bad} pass")))
}

/// The chart carries the version of the workspace.
fn version(root: &Path) -> Result<Vec<String>> {
    let path = root.join(CHART).join("Chart.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let chart: Value = serde_yaml::from_str(&text).context("Chart.yaml")?;
    let wanted = json!(env!("CARGO_PKG_VERSION"));
    let wrong = ["version", "appVersion"].into_iter().filter(|field| chart[field] != wanted);
    Ok(wrong.map(|field| format!("{CHART}/Chart.yaml: {field} must be {wanted}, as in Cargo.toml")).collect())
}

struct Helm {
    binary: std::path::PathBuf,
    chart: std::path::PathBuf,
}

impl Helm {
    fn run(&self, command: &str, args: &[&str]) -> Result<Output> {
        let mut helm = Command::new(&self.binary);
        helm.arg(command);
        if command == "template" {
            helm.arg("coppice");
        }
        helm.arg(&self.chart).args(args);
        if !args.contains(&"--namespace") {
            helm.args(["--namespace", "coppice-system"]);
        }
        helm.output().with_context(|| format!("run {}", self.binary.display()))
    }

    /// What Helm says, if it fails.
    fn failure(&self, what: &str, args: &[&str]) -> Result<Option<String>> {
        let [command, args @ ..] = args else { return Ok(None) };
        let output = self.run(command, args)?;
        Ok((!output.status.success()).then(|| format!("{what}:\n{}", output_text(&output))))
    }

    fn template(&self, args: &[&str]) -> Result<Vec<Value>> {
        let output = self.run("template", args)?;
        if !output.status.success() {
            bail!("helm template {}:\n{}", args.join(" "), output_text(&output));
        }
        yaml::parse(&String::from_utf8(output.stdout)?).context("what helm template prints")
    }
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn name(object: &Value) -> String {
    let of = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", of("/kind"), of("/metadata/name"))
}

/// Object by object, except for what names the tool that installs.
fn differences(expected: &[Value], rendered: &[Value]) -> Vec<String> {
    let by_name = |objects: &[Value]| -> BTreeMap<String, Value> {
        objects.iter().map(|object| (name(object), without_tool(object))).collect()
    };
    let (expected, rendered) = (by_name(expected), by_name(rendered));
    let mut findings = Vec::new();
    for (name, object) in &expected {
        match rendered.get(name) {
            Some(other) => paths(object, other, &mut String::new(), &mut |path, ours, theirs| {
                findings.push(format!("{name}{path}: deploy/ has {ours}, the chart {theirs}"));
            }),
            None => findings.push(format!("{name} is in deploy/ and not in the chart")),
        }
    }
    let only = rendered.keys().filter(|name| !expected.contains_key(*name));
    findings.extend(only.map(|name| format!("{name} is in the chart and not in deploy/")));
    findings
}

fn without_tool(object: &Value) -> Value {
    let mut object = object.clone();
    for path in TOOL {
        let Some((parent, key)) = path.rsplit_once('/') else { continue };
        if let Some(map) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            map.remove(&key.replace("~1", "/"));
            if map.is_empty()
                && let Some((above, last)) = parent.rsplit_once('/')
                && let Some(map) = object.pointer_mut(above).and_then(Value::as_object_mut)
            {
                map.remove(last);
            }
        }
    }
    object
}

/// Calls `report` for each place in which two values differ.
fn paths(a: &Value, b: &Value, path: &mut String, report: &mut impl FnMut(&str, &Value, &Value)) {
    let depth = path.len();
    match (a, b) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                path.push('/');
                path.push_str(key);
                paths(&a[key], &b[key], path, report);
                path.truncate(depth);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (at, (left, right)) in left.iter().zip(right).enumerate() {
                path.push('/');
                path.push_str(&at.to_string());
                paths(left, right, path, report);
                path.truncate(depth);
            }
        }
        _ if a != b => report(path, a, b),
        _ => {}
    }
}

/// A Job that were no hook would run at the installation, and put the operator out of action.
fn hooks(rendered: &[Value]) -> Vec<String> {
    let jobs = rendered.iter().filter(|object| object["kind"] == "Job");
    let wrong = jobs.filter(|job| job["metadata"]["annotations"]["helm.sh/hook"] != "pre-delete");
    wrong.map(|job| format!("{} is no pre-delete hook", name(job))).collect()
}

fn find<'a>(rendered: &'a [Value], wanted: &str) -> &'a Value {
    rendered.iter().find(|object| name(object) == wanted).unwrap_or(&Value::Null)
}

/// What is asked of the pods of trees: what, how it is, and how it is to be.
fn of_trees(rendered: &[Value]) -> (&'static str, Value, Value) {
    let find = |wanted: &str| find(rendered, wanted);
    let trees = find("Deployment coppice-trees");
    let trees_pod = &trees["spec"]["template"]["spec"];
    let ingress = &find("NetworkPolicy coppice-operator")["spec"]["ingress"];
    (
        "what the pods of trees have of the operator's",
        json!({
            "replicas": trees["spec"]["replicas"], "tolerations": trees_pod["tolerations"],
            "imagePullSecrets": trees_pod["imagePullSecrets"], "nodeSelector": trees_pod["nodeSelector"],
            "priorityClassName": trees_pod["priorityClassName"],
            "ingress": find("NetworkPolicy coppice-trees")["spec"]["ingress"]
        }),
        json!({
            "replicas": 3, "tolerations": [{"operator": "Exists"}], "imagePullSecrets": [{"name": "pull"}],
            "nodeSelector": {"a": "b"}, "priorityClassName": "high",
            // Besides, whoever reaches it may call the admission webhook: the API server's addresses are not known.
            "ingress": [
                ingress[0], ingress[1], {"ports": [{"port": "admission", "protocol": "TCP"}]}
            ]
        }),
    )
}

/// What is asked of the Job that runs before access is uninstalled: what, how it is, and how it is to be.
fn of_access(rendered: &[Value]) -> [(&'static str, Value, Value); 4] {
    let find = |wanted: &str| find(rendered, wanted);
    let (job, wake) = (find("Job coppice-release-all"), find("Job coppice-wake-all"));
    let weight = |job: &Value| {
        let weight = &job["metadata"]["annotations"]["helm.sh/hook-weight"];
        weight.as_str().and_then(|weight| weight.parse::<i64>().ok())
    };
    let args = job.pointer("/spec/template/spec/containers/0/args").cloned().unwrap_or_default();
    let hold = 3600 + 5 * 60 + 30 + 300;
    [
        (
            "the Job before access is uninstalled",
            args,
            json!([
                "release-all",
                "--credentials",
                "revoke",
                "--wait",
                "1m30s",
                "--hold",
                format!("{hold}s")
            ]),
        ),
        ("the time of that Job", job["spec"]["activeDeadlineSeconds"].clone(), json!(90 + 240)),
        (
            "what it needs to revoke everything",
            find("ClusterRole coppice-access-release-all")["rules"].clone(),
            json!([{"apiGroups": ["coppice.dev"], "resources": ["clusteraccesses"], "verbs": ["delete"]}]),
        ),
        // One that comes after it keeps replicas of this program from leading for less time than the other Job may take.
        (
            "whether that Job comes before the one that wakes everything",
            json!(
                wake.is_object()
                    && weight(job).is_some_and(|before| before < weight(wake).unwrap_or_default())
            ),
            json!(true),
        ),
    ]
}

/// What the options must lead to.
fn options(rendered: &[Value]) -> Vec<String> {
    let find = |wanted: &str| find(rendered, wanted);
    let container = "/spec/template/spec/containers/0";
    let deployment = find("Deployment coppice-operator");
    let monitor = &find("ServiceMonitor coppice-operator")["spec"];
    let expectations = [
        (
            "the rights for scaleKinds",
            find("ClusterRole coppice-operator-scale-kinds")["rules"].clone(),
            json!([
                {"apiGroups": ["argoproj.io"], "resources": ["rollouts"], "verbs": ["list"]},
                {"apiGroups": ["argoproj.io"], "resources": ["rollouts/scale"], "verbs": ["get", "patch"]},
                {
                    "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
                    "resourceNames": ["rollouts.argoproj.io"], "verbs": ["get"]
                }
            ]),
        ),
        (
            "the operator's arguments",
            deployment.pointer(&format!("{container}/args")).cloned().unwrap_or_default(),
            json!([
                "--scale-kind",
                "argoproj.io/v1alpha1/Rollout/rollouts",
                "--webhook-ca-file",
                "/etc/coppice/webhooks/ca.crt",
                "--concurrency",
                "4",
                "--log",
                "info"
            ]),
        ),
        ("the replicas", deployment["spec"]["replicas"].clone(), json!(3)),
        (
            "the NetworkPolicy",
            find("NetworkPolicy coppice-operator")["spec"]["ingress"].clone(),
            json!([
                {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
                {"ports": [{"port": "probes", "protocol": "TCP"}], "from": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}
            ]),
        ),
        (
            "the rights of editors",
            find("ClusterRole coppice-edit")["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"]
                .clone(),
            json!("true"),
        ),
        (
            "the Job before uninstalling",
            find("Job coppice-wake-all").pointer(&format!("{container}/args")).cloned().unwrap_or_default(),
            json!([
                "--scale-kind",
                "argoproj.io/v1alpha1/Rollout/rollouts",
                "--log",
                "info",
                "wake-all",
                "--wait",
                "1h5m30s"
            ]),
        ),
        (
            "the time of that Job",
            find("Job coppice-wake-all")["spec"]["activeDeadlineSeconds"].clone(),
            json!(3600 + 5 * 60 + 30 + 120),
        ),
        of_trees(rendered),
        (
            "the ServiceMonitor",
            json!([monitor["endpoints"][0]["scheme"], monitor["namespaceSelector"]["matchNames"]]),
            json!(["https", ["coppice-system", "coppice-access-system"]]),
        ),
    ];
    let expectations = expectations.into_iter().chain(of_access(rendered));
    let wrong = expectations.filter(|(_, found, expected)| found != expected);
    wrong.map(|(what, found, expected)| format!("{what}: {found} instead of {expected}")).collect()
}

/// In another namespace nothing may point to the usual one, except where that is protected as well.
fn elsewhere(rendered: &[Value]) -> Vec<String> {
    let mut findings = Vec::new();
    for object in rendered {
        let text = object.to_string().replace("variables.name == 'coppice-system'", "");
        let prose = name(object).starts_with("CustomResourceDefinition");
        if text.contains("coppice-system") && !prose {
            findings
                .push(format!("{} names coppice-system when installed into another namespace", name(object)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::sample::with_sample;

    /// What an optional component needs in the values and in their schema.
    const VALUES: &str = "
sample:
  enabled: false
  image:
    repository: registry.coppice.dev/coppice-sample
    tag: \"\"
    digest: \"\"
";
    const SCHEMA: &str = r##""sample": {
      "type": "object",
      "additionalProperties": false,
      "properties": {"enabled": {"type": "boolean"}, "image": {"$ref": "#/properties/image"}}
    },
    "replicas": "##;

    /// The chart with the sample among its components, and these values.
    fn with_values_of_the_sample(values: &str) -> (tempfile::TempDir, Helm) {
        let copy = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(CHART);
        let chart = copy.path().join(CHART);
        std::fs::create_dir_all(chart.join("templates")).unwrap();
        for name in ["", "templates"] {
            for entry in std::fs::read_dir(source.join(name)).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    std::fs::copy(entry.path(), chart.join(name).join(entry.file_name())).unwrap();
                }
            }
        }
        for (path, text) in crate::generate::templates(with_sample).unwrap() {
            std::fs::write(copy.path().join(path), text).unwrap();
        }
        let edit = |name: &str, edit: &dyn Fn(String) -> String| {
            let path = chart.join(name);
            std::fs::write(&path, edit(std::fs::read_to_string(&path).unwrap())).unwrap();
        };
        edit("values.yaml", &|text| text + values);
        edit("values.schema.json", &|text| text.replacen("\"replicas\": ", SCHEMA, 1));
        (copy, Helm { binary: coppice_plane::helm().unwrap(), chart })
    }

    #[test]
    fn an_optional_component_is_off_by_default_and_switched_on_is_what_its_file_has() {
        let (_copy, helm) = with_values_of_the_sample(VALUES);
        assert_eq!(installed(&helm, with_sample).unwrap(), [""; 0]);
        let image = helm.template(&["--set", "sample.enabled=true,sample.image.tag=v9"]).unwrap();
        let sample = image.iter().find(|object| name(object) == "Deployment coppice-sample").unwrap();
        assert_eq!(
            sample["spec"]["template"]["spec"]["containers"][0]["image"],
            "registry.coppice.dev/coppice-sample:v9"
        );
    }

    #[test]
    fn an_optional_component_that_is_on_by_default_is_found() {
        let (_copy, helm) = with_values_of_the_sample(&VALUES.replace("false", "true"));
        let findings = installed(&helm, with_sample).unwrap();
        // By itself, and with the switch of each of two other components.
        assert_eq!(findings.len(), 3 * 8, "{findings:#?}");
        assert!(
            findings.contains(&"Deployment coppice-sample is in the chart and not in deploy/".to_owned())
        );
    }

    fn expected() -> Vec<Value> {
        let install = Install::kubectl();
        manifests::always(&install, &components(&install)).unwrap().iter().map(yaml::plain).collect()
    }

    #[test]
    fn the_tool_makes_no_difference_and_everything_else_does() {
        let mut rendered = expected();
        for object in &mut rendered {
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
        }
        rendered[0]["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
        assert_eq!(differences(&expected(), &rendered), [""; 0]);
        let last = rendered.len() - 1;
        rendered[last]["spec"]["replicas"] = json!(1);
        rendered[last]["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
        rendered.remove(last - 1);
        rendered.push(json!({"kind": "Secret", "metadata": {"name": "more"}}));
        assert_eq!(
            differences(&expected(), &rendered),
            [
                "Deployment coppice-operator/spec/replicas: deploy/ has 2, the chart 1",
                "Deployment coppice-operator/spec/template/spec/hostNetwork: deploy/ has null, the chart true",
                "PodDisruptionBudget coppice-operator is in deploy/ and not in the chart",
                "Secret more is in the chart and not in deploy/",
            ]
        );
    }

    #[test]
    fn options_without_effect_and_strange_namespaces_are_found() {
        assert_eq!(options(&expected()).len(), 9 + 4);
        assert!(!elsewhere(&expected()).is_empty());
    }

    #[test]
    fn a_rule_that_is_not_the_alert_of_deploy_is_found() {
        let alerts = json!({"groups": [{"name": "coppice", "rules": [{"alert": "A"}]}]});
        let mut rule = json!({"kind": "PrometheusRule", "metadata": {"name": "coppice", "labels": {"a": "b"}}, "spec": alerts});
        assert_eq!(rules(std::slice::from_ref(&rule), &alerts), None);
        rule["spec"]["groups"][0]["rules"][0]["alert"] = json!("B");
        assert!(rules(&[rule], &alerts).is_some());
        assert!(rules(&[], &alerts).is_some());
    }
}
