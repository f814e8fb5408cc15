//! `docs/guides/gitops.md`, and what Argo CD and Flux do with its health checks.

use anyhow::{Context as _, anyhow, ensure};
use coppice_api::condition;
use coppice_tests::requests::documents;
use coppice_tests::test_cluster::repository;
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

/// The kinds of which the page says something, with their group.
const GROUP: &str = "coppice.dev";
/// The order in which things come into a cluster.
const ORDER: [&str; 4] =
    ["CRDs", "the operator, with roles and admission policies", "CoppiceConfig", "ClusterNamespaceManagers"];
/// Of which wave of Argo CD an object is by its annotation, and without it.
const WAVE: &str = "argocd.argoproj.io/sync-wave";
const DEFAULT_WAVE: i64 = 0;

/// The page: its text without snippets, the objects of its YAML, and its commands.
pub(super) struct Page {
    text: String,
    documents: Vec<Value>,
    commands: Vec<String>,
}

impl Page {
    pub(super) fn read() -> anyhow::Result<Self> {
        let page = std::fs::read_to_string(repository().join("docs/guides/gitops.md"))?;
        let (mut text, mut yaml, mut commands) = (String::new(), Vec::new(), Vec::new());
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            let Some(language) = line.trim_start().strip_prefix("```") else {
                text += line;
                text.push('\n');
                continue;
            };
            let snippet: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
            match language {
                "yaml" => yaml.extend(documents(&snippet.join("\n")).with_context(|| snippet.join("\n"))?),
                "sh" => commands.extend(snippet.iter().map(|line| line.trim().to_owned())),
                _ => return Err(anyhow!("a snippet in {language:?}")),
            }
        }
        Ok(Self { text, documents: yaml, commands })
    }

    /// The only document that is so.
    fn only(&self, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<&Value> {
        let mut found = self.documents.iter().filter(|document| is(document));
        let first = found.next().with_context(|| format!("the page has no {what}"))?;
        ensure!(found.next().is_none(), "the page has {what} more than once");
        Ok(first)
    }

    /// The only object of a kind.
    pub(super) fn object(&self, kind: &str) -> anyhow::Result<Value> {
        self.only(kind, |document| document["kind"] == kind).cloned()
    }

    /// A cluster manager with the approval of the page.
    pub(super) fn approved(&self, manager: &str) -> anyhow::Result<Value> {
        let approval = self.only("approval", |document| document["spec"]["approval"].is_object())?;
        let mut manager = documents(manager)?.pop().context("no manager")?;
        manager["spec"]["approval"] = approval["spec"]["approval"].clone();
        Ok(manager)
    }

    fn kustomization(&self, name: &str) -> anyhow::Result<&Value> {
        let is =
            |document: &Value| document["kind"] == "Kustomization" && document["metadata"]["name"] == name;
        self.only(name, is)
    }

    /// The order that the page states is that of its objects, and of the files that it names.
    pub(super) fn order_is_kept(&self) -> Test {
        let section = self.text.split_once("\n## The order\n").context("no section about the order")?.1;
        let section = section.split("\n#").next().unwrap_or_default();
        let item = |line: &str| {
            line.split_once(". ")
                .filter(|(number, _)| number.parse::<u8>().is_ok())
                .map(|(_, item)| item.to_owned())
        };
        let items: Vec<_> = section.lines().filter_map(item).collect();
        ensure!(items == ORDER, "{items:?}");

        let install = std::fs::read_to_string(repository().join("deploy/install.yaml"))?;
        let kinds: Vec<_> = documents(&install)?
            .iter()
            .map(|object| object["kind"].as_str().unwrap_or_default().to_owned())
            .collect();
        let last_crd = kinds.iter().rposition(|kind| kind == "CustomResourceDefinition");
        let operator = kinds.iter().position(|kind| kind == "Deployment");
        ensure!(last_crd.is_some() && last_crd < operator, "CRDs before the operator: {kinds:?}");
        let later = ["CoppiceConfig", "ClusterNamespaceManager"];
        ensure!(!kinds.iter().any(|kind| later.contains(&&**kind)), "these come later: {kinds:?}");

        let wave = |object: &Value| -> anyhow::Result<i64> {
            Ok(object["metadata"]["annotations"][WAVE].as_str().context("it has no wave")?.parse()?)
        };
        ensure!(
            wave(&self.object("CoppiceConfig")?)? < DEFAULT_WAVE,
            "the managers of a sync have no wave of their own"
        );
        ensure!(
            wave(&self.object("Application")?)? > DEFAULT_WAVE,
            "the Application of the operator has no wave of its own"
        );

        let (settings, managers) =
            (self.kustomization("coppice-settings")?, self.kustomization("coppice-managers")?);
        ensure!(settings["spec"]["dependsOn"] == json!([{"name": "coppice"}]), "{settings:#}");
        ensure!(managers["spec"]["dependsOn"] == json!([{"name": "coppice-settings"}]), "{managers:#}");
        for (of, prune) in [(settings, false), (managers, true)] {
            // Without it the next one does not wait until the operator has looked.
            ensure!(of["spec"]["wait"] == true && of["spec"]["prune"] == prune, "{of:#}");
        }
        Ok(())
    }

    /// What is to be suspended is what the page has.
    pub(super) fn commands_name_its_objects(&self) -> Test {
        let named = |prefix: &str| {
            let command = self.commands.iter().find_map(|command| command.strip_prefix(prefix));
            let words = command.map(|rest| rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
            words.with_context(|| format!("no command {prefix}"))
        };
        let objects = |kind: &str| -> Vec<_> {
            let all = self.documents.iter().filter(|document| document["kind"] == kind);
            all.filter_map(|document| document["metadata"]["name"].as_str().map(str::to_owned)).collect()
        };
        let suspended = named("flux suspend kustomization ")?;
        ensure!(suspended == objects("Kustomization"), "{suspended:?}");
        let set = named("argocd app set ")?;
        ensure!(set.first() == objects("Application").first(), "{set:?}");
        Ok(())
    }

    /// Kinds that are named, fields that are named, and conditions that are named are those of the CRDs and of the operator.
    pub(super) fn kinds_and_fields_exist(&self) -> Test {
        let mut schemas = Vec::new();
        for crd in coppice_api::crds() {
            let crd = serde_json::to_value(crd)?;
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
            schemas.push((kind, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()));
        }
        let is_kind = |name: &str| schemas.iter().any(|(kind, _)| kind == name);
        let exclusions = self.only("exclusion", |document| document["resource.exclusions"].is_string())?;
        for exclusion in documents(exclusions["resource.exclusions"].as_str().unwrap_or_default())? {
            let [excluded] = exclusion.as_array().context("no list")?.as_slice() else {
                return Err(anyhow!("{exclusion:#}"));
            };
            ensure!(excluded["apiGroups"] == json!([GROUP]), "{excluded:#}");
            let kinds = excluded["kinds"].as_array().context("no kinds")?;
            ensure!(kinds.iter().all(|kind| kind.as_str().is_some_and(is_kind)), "{excluded:#}");
        }
        // Outside of snippets, what is in backticks.
        let words = self.text.split('`').skip(1).step_by(2);
        let fields: Vec<_> =
            words.filter(|word| word.starts_with("spec.") || word.starts_with("status.")).collect();
        ensure!(fields.len() > 5, "these alone: {fields:?}");
        for field in fields {
            let of_kind = |schema: &Value| {
                field.split('.').try_fold(schema.clone(), |at, name| at["properties"].get(name).cloned())
            };
            ensure!(schemas.iter().any(|(_, schema)| of_kind(schema).is_some()), "no kind has {field}");
        }
        for (kind, schema) in &schemas {
            let Ok([_, observed]) = self.row(kind) else { continue };
            let has = schema["properties"]["status"]["properties"]["observedGeneration"].is_object();
            ensure!((observed == "yes") == has, "{kind}: status.observedGeneration: {observed}");
        }
        let table = self.text.split_once("## Health").context("no section about health")?.1;
        for known in [
            condition::ACCEPTED,
            condition::APPROVED,
            condition::BUDGET_SUFFICIENT,
            condition::IDENTITIES_KNOWN,
            condition::CHANNELS_KNOWN,
            condition::OWNERS_KNOWN,
            condition::FIRED,
            condition::READY,
            condition::TTL_UNDERSTOOD,
            condition::IDENTIFIED,
            condition::WITHIN_LIMITS,
        ] {
            ensure!(table.contains(&format!("`{known}`")), "the page does not name the condition {known}");
        }
        Ok(())
    }

    /// What the table under "Health" says of a kind: its conditions, and whether it has `status.observedGeneration`.
    fn row(&self, kind: &str) -> anyhow::Result<[&str; 2]> {
        let section = self.text.split_once("\n## Health\n").context("no section about health")?.1;
        let row = section.lines().find_map(|line| line.strip_prefix(&format!("| {kind} | ")));
        let cells: Vec<_> = row.with_context(|| format!("nothing about {kind}"))?.split(" | ").collect();
        let [conditions, observed] = cells.as_slice() else { return Err(anyhow!("{cells:?}")) };
        Ok([conditions, observed.trim_end_matches(" |")])
    }

    /// The page names every condition of an object.
    pub(super) fn has_conditions(&self, kind: &str, object: &Value) -> Test {
        let [named, _] = self.row(kind)?;
        let conditions = object["status"]["conditions"].as_array().context("it has no conditions")?;
        for condition in conditions {
            let type_ = condition["type"].as_str().unwrap_or_default();
            ensure!(
                named.contains(&format!("`{type_}`")),
                "{kind}: the page does not name {type_}, but {named}"
            );
        }
        Ok(())
    }
}

/// What Argo CD shows of an object by the script of the page, and the message: as `util/lua` of Argo CD does it, with the
/// libraries that it opens.
pub(super) fn argo_cd(page: &Page, object: &Value) -> anyhow::Result<(String, String)> {
    let key = format!("resource.customizations.health.{GROUP}_ClusterNamespaceManager");
    let script = page.only(&key, |document| document[&key].is_string())?;
    let script = script[&key].as_str().unwrap_or_default();
    let failed = |error: mlua::Error| anyhow!("{error}");
    let lua = mlua::Lua::new_with(mlua::StdLib::TABLE, mlua::LuaOptions::default()).map_err(failed)?;
    let object = lua_value(&lua, object).map_err(failed)?;
    lua.globals().set("obj", object).map_err(failed)?;
    let shown: mlua::Table = lua.load(script).eval().map_err(failed)?;
    let field = |name: &str| shown.get::<String>(name).map_err(failed);
    let status = field("status")?;
    let known = ["Healthy", "Progressing", "Degraded", "Suspended"].contains(&&*status);
    ensure!(known, "Argo CD does not know the health {status}");
    Ok((status, field("message")?))
}

/// JSON as Argo CD gives it to scripts: null is nothing.
fn lua_value(lua: &mlua::Lua, value: &Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(is) => mlua::Value::Boolean(*is),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => mlua::Value::String(lua.create_string(text)?),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| lua_value(lua, item)).collect::<mlua::Result<_>>()?;
            mlua::Value::Table(lua.create_sequence_from(items)?)
        }
        Value::Object(fields) => {
            let table = lua.create_table()?;
            for (name, field) in fields {
                table.set(&**name, lua_value(lua, field)?)?;
            }
            mlua::Value::Table(table)
        }
    })
}

/// The status of an object for Flux by the expressions of the page, in the order of Flux' RFC 0009. What cannot be evaluated is
/// unknown, and is waited for.
pub(super) fn flux(page: &Page, object: &Value) -> anyhow::Result<&'static str> {
    let checks = page.only("healthCheckExprs", |document| document["healthCheckExprs"].is_array())?;
    let of_kind =
        |check: &&Value| check["apiVersion"] == object["apiVersion"] && check["kind"] == object["kind"];
    let check = checks["healthCheckExprs"].as_array().into_iter().flatten().find(of_kind);
    let check = check.with_context(|| format!("no expressions for {}", object["kind"]))?;
    let observed = &object["status"]["observedGeneration"];
    if observed.is_number() && *observed != object["metadata"]["generation"] {
        return Ok("InProgress");
    }
    ensure!(check["current"].is_string(), "Flux asks for current");
    for (field, status) in [("inProgress", "InProgress"), ("failed", "Failed"), ("current", "Current")] {
        let Some(expression) = check[field].as_str() else { continue };
        match evaluated(expression, object)? {
            Some(true) => return Ok(status),
            Some(false) => {}
            None => return Ok("Unknown"),
        }
    }
    Ok("InProgress")
}

/// Whether an expression about the fields of an object is true; none if it cannot be evaluated.
fn evaluated(expression: &str, object: &Value) -> anyhow::Result<Option<bool>> {
    let program = cel::Env::stdlib().compile(expression);
    let program = program.map_err(|error| anyhow!("{expression}: {error}"))?;
    let mut context = cel::Context::default();
    for (name, field) in object.as_object().context("no object")? {
        context.add_variable(name.as_str(), field).map_err(|error| anyhow!("{name}: {error}"))?;
    }
    match program.execute(&context) {
        Ok(cel::Value::Bool(is)) => Ok(Some(is)),
        Ok(other) => Err(anyhow!("{expression} is {other:?}")),
        Err(_) => Ok(None),
    }
}
