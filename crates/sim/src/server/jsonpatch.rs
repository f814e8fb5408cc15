//! JSON patch (RFC 6902).

use serde_json::Value;

/// Carries out a patch, wholly or not at all. The API server does not say what is wrong, so neither does this.
pub(super) fn apply(target: &mut Value, patch: &Value) -> Result<(), ()> {
    let mut result = target.clone();
    for operation in patch.as_array().ok_or(())? {
        step(&mut result, operation)?;
    }
    *target = result;
    Ok(())
}

fn step(target: &mut Value, operation: &Value) -> Result<(), ()> {
    let path = operation["path"].as_str().ok_or(())?;
    let from = || operation["from"].as_str().ok_or(());
    let value = || operation.get("value").cloned().ok_or(());
    match operation["op"].as_str().ok_or(())? {
        "add" => add(target, path, value()?),
        "remove" => remove(target, path).map(|_| ()),
        "replace" => {
            let value = value()?;
            match target.pointer_mut(path) {
                Some(found) => *found = value,
                // The API server's library replaces also what an object does not have.
                None => match parent(target, path)? {
                    (Value::Object(map), key) => drop(map.insert(key, value)),
                    _ => return Err(()),
                },
            }
            Ok(())
        }
        "move" => {
            let moved = remove(target, from()?)?;
            add(target, path, moved)
        }
        "copy" => {
            let from = from()?;
            let copied = match target.pointer(from).cloned() {
                Some(found) => found,
                // Nor does it say that there is nothing to copy.
                None if parent(target, from)?.0.is_object() => Value::Null,
                None => return Err(()),
            };
            add(target, path, copied)
        }
        "test" => {
            let found = target.pointer(path).unwrap_or(&Value::Null);
            let expected = operation.get("value").unwrap_or(&Value::Null);
            if found == expected { Ok(()) } else { Err(()) }
        }
        _ => Err(()),
    }
}

/// The container that a path leads into, and the last part of the path.
fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), ()> {
    let (parent, last) = path.rsplit_once('/').ok_or(())?;
    let last = last.replace("~1", "/").replace("~0", "~");
    Ok((target.pointer_mut(parent).ok_or(())?, last))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), ()> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    match parent(target, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
            Ok(())
        }
        (Value::Array(list), key) if key == "-" => {
            list.push(value);
            Ok(())
        }
        (Value::Array(list), key) => {
            let at: usize = key.parse().map_err(|_| ())?;
            if at > list.len() {
                return Err(());
            }
            list.insert(at, value);
            Ok(())
        }
        _ => Err(()),
    }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, ()> {
    match parent(target, path)? {
        (Value::Object(map), key) => map.remove(&key).ok_or(()),
        (Value::Array(list), key) => {
            let at: usize = key.parse().map_err(|_| ())?;
            if at < list.len() { Ok(list.remove(at)) } else { Err(()) }
        }
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_operation_does_what_the_rfc_says() {
        let cases = [
            (json!([{"op": "add", "path": "/a", "value": 1}]), json!({"a": 1, "l": [1, 2]})),
            (json!([{"op": "add", "path": "/l/1", "value": 9}]), json!({"l": [1, 9, 2]})),
            (json!([{"op": "add", "path": "/l/-", "value": 9}]), json!({"l": [1, 2, 9]})),
            (json!([{"op": "remove", "path": "/l/0"}]), json!({"l": [2]})),
            (json!([{"op": "replace", "path": "/l", "value": {}}]), json!({"l": {}})),
            (json!([{"op": "move", "from": "/l", "path": "/a~1b"}]), json!({"a/b": [1, 2]})),
            (json!([{"op": "copy", "from": "/l/0", "path": "/x"}]), json!({"l": [1, 2], "x": 1})),
            (json!([{"op": "test", "path": "/l/0", "value": 1}]), json!({"l": [1, 2]})),
        ];
        for (patch, expected) in cases {
            let mut target = json!({"l": [1, 2]});
            assert_eq!(apply(&mut target, &patch), Ok(()), "{patch}");
            assert_eq!(target, expected, "{patch}");
        }
    }

    #[test]
    fn a_patch_that_fails_in_the_middle_changes_nothing() {
        let mut target = json!({"a": 1});
        let patch =
            json!([{"op": "add", "path": "/b", "value": 1}, {"op": "test", "path": "/a", "value": 2}]);
        assert_eq!(apply(&mut target, &patch), Err(()));
        assert_eq!(target, json!({"a": 1}));
    }
}
