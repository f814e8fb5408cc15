//! What is known to differ between the server in memory and a real one, and why. Everything else that differs is a
//! mistake.

use serde_json::{Value, json};

use super::step::{Call, Exchange};

/// One difference that is accepted.
pub struct KnownDifference {
    /// What differs.
    pub what: &'static str,
    /// Why it is left so.
    pub why: &'static str,
    /// Makes both answers the same in this respect.
    normalize: fn(&Call, &mut Exchange, &mut Exchange),
}

/// All of them.
pub const KNOWN: &[KnownDifference] = &[
    KnownDifference {
        what: "the revision of a list that may be old (`resourceVersion=0`, or not older than a revision)",
        why: "the real server's cache of a kind lags behind while nothing happens to that kind",
        normalize: |call, real, simulated| {
            let old = matches!(call, Call::RequestSpec(ask) if ask.uri.contains("resourceVersion="));
            if old && real.body["items"].is_array() && simulated.body["items"].is_array() {
                remove(&mut real.body["metadata"], "resourceVersion");
                remove(&mut simulated.body["metadata"], "resourceVersion");
            }
        },
    },
    KnownDifference {
        what: "an object that was just made and is read at any revision (`resourceVersion=0`)",
        why: "the real server's cache may not have heard of it yet",
        normalize: |call, real, simulated| {
            // Events are never read from a cache.
            let old = matches!(call, Call::RequestSpec(ask) if ask.uri.contains("resourceVersion=0") && !ask.uri.contains("/events"));
            if old && real.code == 404 && simulated.code == 200 {
                *simulated = real.clone();
            }
        },
    },
    KnownDifference {
        what: "whether a page of Events is the last one",
        why: "controllers of the real cluster write Events, too, which the request's labels leave out, and its page does not",
        normalize: |call, real, simulated| {
            let Call::RequestSpec(ask) = call else { return };
            let limit = ask.uri.split("&limit=").nth(1).and_then(|text| text.parse::<usize>().ok());
            let is_full = limit.is_some() && real.body["items"].as_array().map(Vec::len) == limit;
            let goes_on = |body: &Value| body["metadata"]["continue"].is_string();
            if ask.uri.contains("/events?") && is_full && goes_on(&real.body) && !goes_on(&simulated.body) {
                remove(&mut real.body["metadata"], "continue");
            }
        },
    },
    KnownDifference {
        what: "the difference that is shown when an update changes too much of a pod",
        why: "it is the work of a library that compares values of Go",
        normalize: |_, real, simulated| {
            cut_differences(&mut real.body);
            cut_differences(&mut simulated.body);
        },
    },
    KnownDifference {
        what: "warnings that the name of a finalizer has no domain",
        why: "nobody acts on them",
        normalize: |_, real, _| {
            real.warnings.retain(|text| !text.contains("prefer a domain-qualified finalizer"));
        },
    },
    KnownDifference {
        what: "in a dry run, the key that a conflict of uids names",
        why: "the real server's dry runs leave the first segment out of it",
        normalize: |_, real, simulated| {
            for body in [&mut real.body, &mut simulated.body] {
                if let Some(Value::String(message)) = body.get_mut("message") {
                    *message = message.replace("Key: /registry/", "Key: /");
                }
            }
        },
    },
    KnownDifference {
        what: "what is said of a Job whose template is not to be changed",
        why: "the answer prints the whole template as Go does, internal field names and all",
        normalize: |_, real, simulated| {
            let is_template = |cause: &Value| {
                cause["field"].as_str().is_some_and(|field| field.starts_with("spec.template"))
                    && cause["message"].as_str().is_some_and(|text| text.ends_with("field is immutable"))
            };
            let job = real.body["details"]["kind"] == "Job" && real.code == 422 && simulated.code == 422;
            for body in [&mut real.body, &mut simulated.body].into_iter().filter(|_| job) {
                body["message"] = Value::Null;
                if let Some(causes) = body["details"]["causes"].as_array_mut() {
                    causes.retain(|cause| !is_template(cause));
                }
            }
        },
    },
    KnownDifference {
        what: "the object that is quoted when a patch makes something of wrong types",
        why: "it is quoted with who manages its fields, in the order of Go's fields",
        normalize: |_, real, simulated| {
            let of_patch =
                |body: &Value| body.pointer("/details/causes/0/field") == Some(&Value::from("patch"));
            if of_patch(&real.body) && of_patch(&simulated.body) {
                for body in [&mut real.body, &mut simulated.body] {
                    body["message"] = Value::Null;
                    let message = &mut body["details"]["causes"][0]["message"];
                    let why = message.as_str().and_then(|text| text.rsplit_once("\": "));
                    *message = why.map_or(Value::Null, |(_, why)| why.into());
                }
            }
        },
    },
    KnownDifference {
        what: "the order in which is said what of an applied object is not as its schema says",
        why: "it is the order of a map of Go: none; and after a field that is not declared nothing is looked at",
        normalize: |_, real, simulated| {
            for body in [&mut real.body, &mut simulated.body] {
                let Some(Value::String(message)) = body.get_mut("message") else { continue };
                if let (Some((before, _)), true) =
                    (message.split_once("): "), message.contains("not declared in schema"))
                {
                    before.to_owned().clone_into(message);
                } else if let Some((before, list)) = message.split_once(": errors:\n") {
                    let mut list: Vec<&str> = list.split('\n').collect();
                    list.sort_unstable();
                    *message = format!("{before}: errors:\n{}", list.join("\n"));
                }
            }
        },
    },
    KnownDifference {
        what: "everything but the name of a Service or a claim that is admitted",
        why: "the real server gives Services addresses and ports and claims a finalizer, and fills in what follows from that",
        normalize: |_, real, simulated| {
            for body in [&mut real.body, &mut simulated.body] {
                if body["kind"] == "Service" || body["kind"] == "PersistentVolumeClaim" {
                    *body = json!({"kind": body["kind"], "name": body["metadata"]["name"]});
                }
            }
        },
    },
    KnownDifference {
        what: "warnings beside the refusal of an Event that is written in the form of the other group",
        why: "nobody acts on warnings of what is refused",
        normalize: |_, real, _| {
            let message = real.body["message"].as_str().unwrap_or_default();
            if real.code == 400 && message.contains("does not match the expected API version") {
                real.warnings.clear();
            }
        },
    },
    KnownDifference {
        what: "the order of causes: conflicts of field managers, and what is wrong with a custom resource",
        why: "the real server lists them in the order of a map of Go: in none",
        normalize: |_, real, simulated| {
            for body in [&mut real.body, &mut simulated.body] {
                let custom = body.pointer("/details/group") == Some(&Value::from("coppice.dev"));
                let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) else {
                    continue;
                };
                let conflicts = causes.iter().all(|cause| cause["reason"] == "FieldManagerConflict");
                if (custom || conflicts) && causes.len() > 1 {
                    causes.sort_by_key(Value::to_string);
                    body["message"] = Value::Null;
                }
            }
        },
    },
];

/// Makes two answers the same in all that is known to differ.
pub(super) fn normalize(call: &Call, real: &mut Exchange, simulated: &mut Exchange) {
    for known in KNOWN {
        (known.normalize)(call, real, simulated);
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(field);
    }
}

/// Cuts the differences, and what follows them, out of messages.
fn cut_differences(body: &mut Value) {
    let last = "(allow it to be set to 1 if it was previously negative)";
    let cut = |text: &mut Value| {
        if let Some((before, _)) = text.as_str().and_then(|text| text.split_once(last)) {
            *text = before.into();
        }
    };
    let causes = body.pointer_mut("/details/causes").and_then(Value::as_array_mut);
    causes.into_iter().flatten().filter_map(|cause| cause.get_mut("message")).for_each(cut);
    body.get_mut("message").into_iter().for_each(cut);
}
