//! `Runtimes` as `ManagedClusters`, with what their Shoots say and they do not.
//!
//! What a `ManagedCluster` has no field for stays in the Shoot as it is, and is reported: nobody keeps it from then on.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::access::is_of_kyma;
use super::dump::{Dump, Found, NamespacedName};
use super::{Options, objects};
use crate::import::Remarks;
use crate::import::fields::{FieldError, Fields};
use crate::print::count;
use crate::validate;

/// On a `Runtime`: its Shoot is not patched.
const SUSPENDED: &str = "operator.kyma-project.io/suspend-patch-reconciliation";
/// Fields of a `Runtime` that decide something in a Shoot, and have no field here.
const LEFT: [&str; 5] = [
    "/spec/shoot/licenceType",
    "/spec/shoot/enforceSeedLocation",
    "/spec/shoot/kubernetes/kubeAPIServer/additionalOidcConfig",
    "/spec/security/networking/filter",
    "/spec/imageRegistryCache",
];
/// Fields of a pool that are taken over.
const OF_POOL: [&str; 9] =
    ["name", "machine", "volume", "minimum", "maximum", "zones", "labels", "annotations", "taints"];
/// Fields of the settings of OIDC that are taken over.
const OF_OIDC: [&str; 6] =
    ["issuerURL", "clientID", "usernameClaim", "usernamePrefix", "groupsClaim", "groupsPrefix"];

/// Translates one `Runtime`; none if nothing is to be created for it, which the remarks explain.
pub(super) fn import(
    found: &Found,
    dump: &Dump,
    options: &Options,
    taken: &mut BTreeSet<NamespacedName>,
    remarks: &mut Remarks,
) -> Result<Option<Value>, FieldError> {
    if found.is_being_deleted() {
        remarks.note("it is being deleted, and nothing is written for it");
        return Ok(None);
    }
    let spec = Fields::of(&found.value["spec"], "spec")?;
    let of = spec.below("shoot")?;
    let name = required(&of, "name")?;
    let Some(shoot) = shoot_of(&name, dump, remarks) else { return Ok(None) };
    let key = (found.namespace.clone(), name);
    let (namespace, name) = (&key.0, &key.1);
    if dump.managed.contains_key(&key) {
        remarks.note(format!("ManagedCluster {namespace}/{name} exists and is left as it is"));
        return Ok(None);
    }
    if !taken.insert(key.clone()) {
        remarks.differs(format!(
            "nothing is written for it: another Runtime of its namespace has the Shoot {name}"
        ));
        return Ok(None);
    }
    let mut labels = found.labels();
    labels.retain(|key, _| is_of_kyma(key));
    let spec = spec_of(found, &of, &shoot.value, options, remarks)?;
    let object = objects::object("ManagedCluster", &objects::metadata(Some(namespace), name, &labels), &spec);
    let problems = validate::check(&object);
    for problem in &problems {
        remarks.differs(format!("nothing is written for it: our API refuses the result: {problem}"));
    }
    left(found, remarks);
    Ok(problems.is_empty().then_some(object))
}

/// The Shoot, without which nothing is known of versions, images and zones.
fn shoot_of<'a>(name: &str, dump: &'a Dump, remarks: &mut Remarks) -> Option<&'a Found> {
    let mut of_name = dump.shoots.iter().filter(|shoot| shoot.name == name);
    match (of_name.next(), of_name.next()) {
        (Some(shoot), None) => return Some(shoot),
        (None, _) => remarks.differs(format!(
            "nothing is written for it, since its Shoot {name} is not in the dump: give what kubectl get shoot -o yaml prints in the Gardener project \
             beside it"
        )),
        (Some(_), Some(_)) => remarks.differs(format!(
            "nothing is written for it, since several Shoots in the dump are called {name}: give those of its project alone"
        )),
    }
    None
}

fn spec_of(
    found: &Found,
    of: &Fields<'_>,
    shoot: &Value,
    options: &Options,
    remarks: &mut Remarks,
) -> Result<Value, FieldError> {
    let version = text_at(shoot, "/spec/kubernetes/version").unwrap_or_default();
    // One that is lower is not asked for there either.
    let asked = of.below("kubernetes")?.text("version")?;
    if let Some(asked) = asked.filter(|asked| numbers(asked) > numbers(version)) {
        remarks.differs(format!(
            "its version is {asked}, and that of its Shoot is still {version}, which is written: set spec.version to the other one for the upgrade"
        ));
    }
    let networking = of.below("networking")?;
    let networks = fields([
        ("nodes", networking.text("nodes")?),
        ("pods", networking.text("pods")?),
        ("services", networking.text("services")?),
    ]);
    let mut spec = json!({
        "provider": {"gardener": provider(of, &networking, shoot, options, remarks)?},
        "version": version,
        "region": required(of, "region")?,
        "networks": networks,
        "workers": pools(of, shoot, remarks)?,
    });
    let tolerance = of.below("controlPlane")?.below("highAvailability")?.below("failureTolerance")?;
    if let Some(tolerance) = tolerance.text("type")? {
        spec["highAvailability"] = json!(if tolerance == "zone" { "Zone" } else { "Node" });
    }
    // What Infrastructure Manager gives a cluster that asks for nothing is in its Shoot.
    let has_issuer = |oidc: &&Value| text_at(oidc, "/issuerURL").is_some();
    let asked = found.value.pointer("/spec/shoot/kubernetes/kubeAPIServer/oidcConfig").filter(has_issuer);
    let given = shoot.pointer("/spec/kubernetes/kubeAPIServer/oidcConfig").filter(has_issuer);
    if let Some(oidc) = asked.or(given) {
        spec["oidc"] = oidc_of(oidc, remarks);
    }
    let policy = "/spec/kubernetes/kubeAPIServer/auditConfig/auditPolicy/configMapRef/name";
    if let Some(policy) = text_at(shoot, policy) {
        spec["auditPolicy"] = json!(policy);
    }
    Ok(spec)
}

fn provider(
    of: &Fields<'_>,
    networking: &Fields<'_>,
    shoot: &Value,
    options: &Options,
    remarks: &mut Remarks,
) -> Result<Value, FieldError> {
    let infrastructure = required(&of.below("provider")?, "type")?;
    let profile =
        text_at(shoot, "/spec/cloudProfile/name").or_else(|| text_at(shoot, "/spec/cloudProfileName"));
    let binding = text_at(shoot, "/spec/credentialsBindingName").map(str::to_owned);
    let binding = match (binding, of.text("secretBindingName")?) {
        (Some(binding), _) => Some(binding),
        (None, Some(secret)) => {
            remarks.differs(format!(
                "its Shoot has the SecretBinding {secret}: create a CredentialsBinding of this name for the same account in the Gardener project first"
            ));
            Some(secret)
        }
        (None, None) => None,
    };
    let mut gardener = fields([
        ("clusterProvider", Some(options.provider.clone())),
        ("cloudProfile", profile.map(str::to_owned)),
        ("credentialsBinding", binding),
        ("infrastructure", Some(infrastructure)),
        ("purpose", of.text("purpose")?),
        (
            "network",
            networking.text("type")?.or_else(|| text_at(shoot, "/spec/networking/type").map(str::to_owned)),
        ),
    ]);
    let pool = text_at(shoot, "/spec/provider/infrastructureConfig/floatingPoolName");
    let balancer = text_at(shoot, "/spec/provider/controlPlaneConfig/loadBalancerProvider");
    if let (Some(pool), Some(balancer)) = (pool, balancer) {
        gardener["openstack"] = json!({"floatingPool": pool, "loadBalancer": balancer});
    }
    Ok(gardener)
}

/// The pools, each with the zones and the image that it has by now.
fn pools(of: &Fields<'_>, shoot: &Value, remarks: &mut Remarks) -> Result<Vec<Value>, FieldError> {
    let provider = of.below("provider")?;
    let mut pools = Vec::new();
    for list in ["workers", "additionalWorkers"] {
        for (index, pool) in provider.list(list)?.unwrap_or_default().iter().enumerate() {
            let path = format!("{}[{index}]", provider.path_of(list));
            pools.push(pool_of(&Fields::of(pool, &path)?, pool, shoot, remarks)?);
        }
    }
    Ok(pools)
}

fn pool_of(of: &Fields<'_>, pool: &Value, shoot: &Value, remarks: &mut Remarks) -> Result<Value, FieldError> {
    let name = required(of, "name")?;
    let mut workers = shoot.pointer("/spec/provider/workers").and_then(Value::as_array).into_iter().flatten();
    let none = Value::Null;
    let live = workers.find(|live| live["name"] == *name).unwrap_or(&none);
    let machine = of.below("machine")?;
    let image = [pool, live].map(|of| &of["machine"]["image"]);
    let image = image.into_iter().find(|image| text_at(image, "/name").is_some());
    let volume = [pool, live].map(|of| &of["volume"]).into_iter().find(|volume| volume.is_object());
    let mut zones = texts(&live["zones"]);
    for zone in texts(&pool["zones"]) {
        if !zones.contains(&zone) {
            zones.push(zone);
        }
    }
    let mut new = json!({
        "name": name,
        "min": of.integer("minimum")?.ok_or_else(|| of.wrong("minimum", "required"))?,
        "max": of.integer("maximum")?.ok_or_else(|| of.wrong("maximum", "required"))?,
        "machine": required(&machine, "type")?,
    });
    if let Some(image) = image {
        new["image"] = some_of(image, &["name", "version"]);
    }
    if let Some(volume) = volume {
        new["volume"] = some_of(volume, &["type", "size"]);
    }
    if !zones.is_empty() {
        new["zones"] = json!(zones);
    }
    for key in ["labels", "annotations"] {
        let texts = of.texts(key)?;
        if !texts.is_empty() {
            new[key] = json!(texts);
        }
    }
    let taints: Vec<Value> = of
        .list("taints")?
        .unwrap_or_default()
        .iter()
        .map(|taint| some_of(taint, &["key", "value", "effect"]))
        .collect();
    if !taints.is_empty() {
        new["taints"] = json!(taints);
    }
    let mut left = others(pool, &OF_POOL, "");
    left.extend(others(&pool["machine"], &["type", "image"], "machine."));
    left.extend(others(&pool["volume"], &["type", "size"], "volume."));
    if !left.is_empty() {
        remarks.differs(format!(
            "pool {name}: a ManagedCluster has no field for {}: what its Shoot has stays, and nobody keeps it",
            left.join(", ")
        ));
    }
    Ok(new)
}

/// By whose tokens users are known. What is left out has another default there than here, so that it is written.
fn oidc_of(oidc: &Value, remarks: &mut Remarks) -> Value {
    let issuer = text_at(oidc, "/issuerURL").unwrap_or_default();
    let claim = text_at(oidc, "/usernameClaim").unwrap_or("sub");
    let prefix = match text_at(oidc, "/usernamePrefix") {
        Some("-") => String::new(),
        Some(prefix) => prefix.to_owned(),
        None if claim == "email" => String::new(),
        None => format!("{issuer}#"),
    };
    let left = others(oidc, &OF_OIDC, "");
    if !left.is_empty() {
        remarks.differs(format!(
            "oidcConfig: a ManagedCluster has no field for {}, which are not taken over",
            left.join(", ")
        ));
    }
    fields([
        ("issuerURL", Some(issuer.to_owned())),
        ("clientID", text_at(oidc, "/clientID").map(str::to_owned)),
        ("usernameClaim", Some(claim.to_owned())),
        ("usernamePrefix", Some(prefix)),
        ("groupsClaim", text_at(oidc, "/groupsClaim").map(str::to_owned)),
        ("groupsPrefix", Some(text_at(oidc, "/groupsPrefix").unwrap_or_default().to_owned())),
    ])
}

/// Says what of a `Runtime` nobody keeps any more.
fn left(found: &Found, remarks: &mut Remarks) {
    let is_set = |path: &str| {
        found.value.pointer(path).is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
    };
    let left: Vec<String> = LEFT
        .iter()
        .filter(|path| is_set(path))
        .map(|path| path.trim_start_matches('/').replace('/', "."))
        .collect();
    if !left.is_empty() {
        remarks.differs(format!(
            "what its Shoot has of {} stays, and nobody keeps it from then on",
            left.join(", ")
        ));
    }
    let administrators = found.value.pointer("/spec/security/administrators").and_then(Value::as_array);
    if let Some(number) = administrators.map(Vec::len).filter(|number| *number > 0) {
        remarks.differs(format!(
            "a Shoot has no field for administrators: the ClusterRoleBindings of {} stay in the cluster, and nobody adds or removes one: give each a \
             ClusterAccess, or manage them in the cluster",
            count(number, "administrator")
        ));
    }
    if found.value["metadata"]["annotations"][SUSPENDED] == "true" {
        remarks.differs(format!(
            "the annotation {SUSPENDED} keeps its Shoot from being changed there: nothing does so here"
        ));
    }
}

fn required(of: &Fields<'_>, key: &str) -> Result<String, FieldError> {
    of.text(key)?.filter(|text| !text.is_empty()).ok_or_else(|| of.wrong(key, "required"))
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

/// A text that is not empty.
fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    all.map(str::to_owned).collect()
}

/// An object with the fields that have a value.
fn fields<const N: usize>(all: [(&str, Option<String>); N]) -> Value {
    let written = all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?))));
    Value::Object(written.collect::<Map<String, Value>>())
}

/// These fields of an object, where it has them.
fn some_of(value: &Value, keys: &[&str]) -> Value {
    let written = keys.iter().filter(|key| !value[**key].is_null());
    Value::Object(written.map(|key| ((*key).to_owned(), value[*key].clone())).collect::<Map<String, Value>>())
}

/// The names of all other fields that have a value.
fn others(value: &Value, known: &[&str], prefix: &str) -> Vec<String> {
    let all = value.as_object().into_iter().flatten();
    let others = all.filter(|(key, value)| !value.is_null() && !known.contains(&key.as_str()));
    others.map(|(key, _)| format!("{prefix}{key}")).collect()
}
