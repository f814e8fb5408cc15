//! The forms in which that system's settings come: the values of its chart, configuration files, and the objects that hold
//! such files.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::kept::{self, name_of};
use super::known::{ACTION, API, COLLECT, Shape, Unknown, VALUES};
use super::problems::Problems;
use crate::files::Document;
use crate::import::Remarks;

/// The settings of one controller.
#[derive(Debug)]
pub(super) struct ControllerSettings {
    /// Where they are, for messages.
    pub(super) place: String,
    /// The path to them there: empty, or `collectController.config`.
    pub(super) path: &'static str,
    pub(super) value: Value,
}

/// The settings of an installation.
#[derive(Debug, Default)]
pub(super) struct Installation {
    pub(super) collect: Option<ControllerSettings>,
    pub(super) action: Option<ControllerSettings>,
    /// The namespaces that it runs in, as far as that is known: one, if all is well.
    pub(super) own_namespaces: BTreeSet<String>,
    /// The Secrets that the chart lays over the settings of each component, and of which nothing was given.
    pub(super) missing_secrets: Vec<(Component, Vec<String>)>,
    /// Whether the API has settings.
    pub(super) api: bool,
    /// Whether the API looks people up in a directory; none if its settings are not there.
    pub(super) people: Option<bool>,
    /// Whether it is the values of the chart: then what is not there is as the chart has it.
    pub(super) values: bool,
}

/// Whose settings a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    Collect,
    Action,
    Api,
}

impl Component {
    /// What the values of the chart call it.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Collect => "collectController",
            Self::Action => "actionController",
            Self::Api => "api",
        }
    }

    /// By the name of an object or file, if that says it.
    fn of_name(name: &str) -> Option<Self> {
        let parts = [
            ("collect-ctl", Self::Collect),
            ("collect-controller", Self::Collect),
            ("action-ctl", Self::Action),
            ("action-controller", Self::Action),
            ("api-config", Self::Api),
        ];
        parts.into_iter().find(|(part, _)| name.contains(part)).map(|(_, component)| component)
    }
}

/// What a null in something that is laid over another one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Null {
    /// It removes what was there, as Helm does.
    Removes,
    /// It changes nothing, as that system does.
    IsIgnored,
}

/// Reads all documents as the settings of one installation: values first, and later files laid over earlier ones. What is wrong is
/// left out.
pub(super) fn read(documents: &[Document], remarks: &mut Remarks, problems: &mut Problems) -> Installation {
    let mut reading = Reading { installation: Installation::default(), laid: Vec::new(), remarks, problems };
    let mut values: Option<(String, Value)> = None;
    let mut others = Vec::new();
    for (place, object) in documents.iter().flat_map(Document::objects) {
        if is_object(&object) || !is_values(&object) {
            others.push((place, object));
            continue;
        }
        reading.refuse_unknown(&place, VALUES, &object);
        match &mut values {
            None => values = Some((place, object)),
            Some((first, all)) => {
                *first = format!("{first} and {place}");
                lay_over(all, object, Null::Removes);
            }
        }
    }
    if let Some((place, values)) = &values {
        reading.add_values(place, values);
    }
    // That system reads files by their names, of which this one is the first.
    others.sort_by_key(|(_, object)| is_object(object) && !kept::has_base(object));
    let mut left_out = Vec::new();
    for (place, object) in others {
        if !is_object(&object) {
            reading.add_config(&place, object, None);
        } else if !reading.add_object(&place, &object) {
            left_out.push(name_of(&object));
        }
    }
    if !left_out.is_empty() {
        reading.remarks.note(format!("left out, because they have no settings: {}", left_out.join(", ")));
    }
    reading.finish(values.as_ref().map(|(_, values)| values))
}

/// An installation in the making.
struct Reading<'a> {
    installation: Installation,
    /// Which objects have files that were laid over something, and whose settings these are.
    laid: Vec<(Component, String)>,
    remarks: &'a mut Remarks,
    problems: &'a mut Problems,
}

impl Reading<'_> {
    fn add_values(&mut self, place: &str, values: &Value) {
        let config = |component: Component, path: &'static str| {
            let mut all = values["config"].clone();
            lay_over(&mut all, values[component.key()]["config"].clone(), Null::IsIgnored);
            ControllerSettings { place: place.to_owned(), path, value: all }
        };
        let api = config(Component::Api, "api.config").value;
        let installation = &mut self.installation;
        installation.values = true;
        installation.collect = Some(config(Component::Collect, "collectController.config"));
        installation.action = Some(config(Component::Action, "actionController.config"));
        installation.own_namespaces.extend(values["namespaceOverride"].as_str().map(str::to_owned));
        if !values["api"].is_null() {
            installation.api = true;
            installation.people = Some(looks_people_up(&api));
        }
    }

    /// Adds the files in a Secret or `ConfigMap`; whether there are any.
    fn add_object(&mut self, place: &str, object: &Value) -> bool {
        if !kept::holds_files(object) {
            return false;
        }
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let mut any = false;
        for (key, file) in kept::files(object) {
            let component = Component::of_name(name).or_else(|| Component::of_name(&key));
            let place = format!("{place}, {}", name_of(object));
            let file = match file {
                Ok(file) if component.is_none() && !says_whose(&file) => continue,
                Ok(file) => file,
                Err(why) if component.is_some() => {
                    self.problems.add(format!("{place}: {why}"));
                    continue;
                }
                // Of something else, as far as is known.
                Err(why) => {
                    self.remarks.note(format!("{place}: left out, because {why}"));
                    continue;
                }
            };
            any = true;
            if let Some(component) = self.add_config(&format!("{place}: {key}"), file, component) {
                self.laid.push((component, name.to_owned()));
            }
        }
        if any && let Some(namespace) = object.pointer("/metadata/namespace").and_then(Value::as_str) {
            self.installation.own_namespaces.insert(namespace.to_owned());
        }
        any
    }

    /// Adds a configuration file, and says whose it is.
    fn add_config(&mut self, place: &str, value: Value, component: Option<Component>) -> Option<Component> {
        let component = match component {
            Some(component) => component,
            None => self.component_of(place, &value)?,
        };
        let shape = match component {
            Component::Collect => COLLECT,
            Component::Action => ACTION,
            Component::Api => API,
        };
        self.refuse_unknown(place, shape, &value);
        let own = value.pointer("/context/namespace").and_then(Value::as_str);
        self.installation.own_namespaces.extend(own.map(str::to_owned));
        let config = match component {
            Component::Collect => &mut self.installation.collect,
            Component::Action => &mut self.installation.action,
            Component::Api => {
                self.installation.api = true;
                let people = &mut self.installation.people;
                // A part of its settings says nothing of what it leaves out.
                let says = !value["people_database"].is_null() || people.is_none();
                *people = if says { Some(looks_people_up(&value)) } else { *people };
                return Some(component);
            }
        };
        let Some(config) = config else {
            *config = Some(ControllerSettings { place: place.to_owned(), path: "", value });
            return Some(component);
        };
        let (before, after) = (&config.value["namespaces"], &value["namespaces"]);
        if !before.is_null() && !after.is_null() && before != after {
            self.remarks.differs(format!(
                "{place}: its namespaces take the place of those of {}, as where that system reads both; import settings of \
                 different installations one by one",
                config.place
            ));
        }
        config.place = format!("{} and {place}", config.place);
        lay_over(&mut config.value, value, Null::IsIgnored);
        Some(component)
    }

    /// Whose settings these are, by the fields that only one component has.
    fn component_of(&mut self, place: &str, value: &Value) -> Option<Component> {
        let unknown =
            |shape: &Shape| -> Vec<String> { shape.unknown(value, "").iter().map(Unknown::path).collect() };
        let (collect, action, api) = (unknown(COLLECT), unknown(ACTION), unknown(API));
        let of_collect = action.iter().find(|path| !collect.contains(path));
        let of_action = collect.iter().find(|path| !action.contains(path));
        let of_api = collect.iter().find(|path| action.contains(path) && !api.contains(path));
        match (of_collect, of_action, of_api) {
            (Some(one), Some(two), _) => {
                self.problems.add(format!(
                    "{place}: {one} is a setting of the collect controller and {two} of the action controller: give a file for each"
                ));
                None
            }
            (Some(_), None, _) => Some(Component::Collect),
            (None, Some(_), _) => Some(Component::Action),
            (None, None, Some(_)) => Some(Component::Api),
            (None, None, None) => {
                // Whatever it is, what nobody knows is said first.
                if !self.refuse_unknown(place, COLLECT, value) {
                    self.problems.add(format!(
                        "{place}: nothing here says whether these are settings of the collect controller or of the action controller: \
                         write them below collectController: {{config: ...}} or actionController: {{config: ...}}, as in the values of \
                         the chart"
                    ));
                }
                None
            }
        }
    }

    /// Writes down the fields that are not known; whether there are some.
    fn refuse_unknown(&mut self, place: &str, shape: &Shape, value: &Value) -> bool {
        let unknown = shape.unknown(value, "");
        for one in &unknown {
            self.problems.add(format!("{place}: {one}"));
        }
        !unknown.is_empty()
    }

    /// Compares the Secrets that the chart names with those that were given.
    fn finish(mut self, values: Option<&Value>) -> Installation {
        for component in [Component::Collect, Component::Action] {
            let listed = values.and_then(|all| all[component.key()]["extraConfigSecrets"].as_array());
            let given = |name: &str| {
                let mut of_component = self.laid.iter().filter(|(one, _)| *one == component);
                // What a template in a name becomes only Helm knows.
                of_component.any(|(_, laid)| laid == name || name.contains("{{"))
            };
            let names = listed.into_iter().flatten().map(|entry| {
                let name = entry["name"].as_str().or_else(|| entry.as_str());
                name.unwrap_or("without a name")
            });
            let missing: Vec<String> = names.filter(|name| !given(name)).map(str::to_owned).collect();
            if !missing.is_empty() {
                self.installation.missing_secrets.push((component, missing));
            }
        }
        self.installation
    }
}

/// Whether it is an object of Kubernetes.
fn is_object(value: &Value) -> bool {
    value["apiVersion"].is_string() && value["kind"].is_string()
}

/// Whether a file that lies somewhere has settings of one component, and nothing that is none.
fn says_whose(file: &Value) -> bool {
    let known = |shape: &&Shape| shape.unknown(file, "").is_empty();
    (1..3).contains(&[COLLECT, ACTION, API].iter().filter(|shape| known(shape)).count())
}

fn is_values(object: &Value) -> bool {
    ["collectController", "actionController", "api", "config"].iter().any(|key| object[*key].is_object())
}

/// Whether the API looks people up: without a block it does not, and with one it does unless that says otherwise.
fn looks_people_up(api: &Value) -> bool {
    let block = api["people_database"].as_object();
    block.is_some_and(|block| {
        !block.is_empty() && block.get("enabled").and_then(Value::as_bool).unwrap_or(true)
    })
}

/// Lays settings over others: objects field by field, everything else as a whole.
fn lay_over(below: &mut Value, above: Value, null: Null) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                if value.is_null() && null == Null::Removes {
                    below.remove(&key);
                } else {
                    // A null over nothing stays one, which means something to that system.
                    lay_over(below.entry(key).or_insert(Value::Null), value, null);
                }
            }
        }
        (_, Value::Null) => {}
        (below, Value::Object(above)) => {
            // Nulls in something that lies over nothing are as they are in it alone.
            *below = Value::Object(Map::new());
            lay_over(below, Value::Object(above), null);
        }
        (below, above) => *below = above,
    }
}
