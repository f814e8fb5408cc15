//! The little protobuf that kubectl insists on: `kubectl create` sends built-in kinds in it, whatever its flags, and
//! does not fall back to JSON. Namespaces, config maps, secrets and service accounts are read; everything else stays as
//! it is, and is refused as of an unknown media type.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::server::Request;

/// Before every message.
const MAGIC: &[u8] = b"k8s\0";

/// A body in JSON, if it was protobuf of a kind that is known here.
pub(super) fn to_json(request: &Request) -> Option<Vec<u8>> {
    let media = request.content_type.as_deref()?.split(';').next()?.trim();
    if media != "application/vnd.kubernetes.protobuf" {
        return None;
    }
    let envelope = fields(request.body.strip_prefix(MAGIC)?)?;
    let of_type = fields(bytes(&envelope, 1)?)?;
    let (version, kind) = (text(&of_type, 1)?, text(&of_type, 2)?);
    let mut object = content(&version, &kind, &fields(bytes(&envelope, 2)?)?)?;
    object.insert("apiVersion".to_owned(), version.into());
    object.insert("kind".to_owned(), kind.into());
    Some(Value::Object(object).to_string().into_bytes())
}

fn content(version: &str, kind: &str, fields: &[Field<'_>]) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    object.insert("metadata".to_owned(), metadata(bytes(fields, 1)?)?);
    let plain = |value: &[u8]| Some(Value::String(String::from_utf8(value.to_vec()).ok()?));
    let encoded = |value: &[u8]| Some(Value::String(STANDARD.encode(value)));
    match (version, kind) {
        ("v1", "Namespace") => {}
        ("v1", "ServiceAccount") if fields.iter().all(|(number, _)| *number == 1) => {}
        ("v1", "ConfigMap") => {
            put(&mut object, "data", map(fields, 2, plain)?);
            put(&mut object, "binaryData", map(fields, 3, encoded)?);
            put_flag(&mut object, fields, 4);
        }
        ("v1", "Secret") => {
            put(&mut object, "data", map(fields, 2, encoded)?);
            put(&mut object, "stringData", map(fields, 4, plain)?);
            if let Some(kind) = text(fields, 3).filter(|kind| !kind.is_empty()) {
                object.insert("type".to_owned(), kind.into());
            }
            put_flag(&mut object, fields, 5);
        }
        _ => return None,
    }
    Some(object)
}

/// `ObjectMeta`, without what only the server writes.
fn metadata(message: &[u8]) -> Option<Value> {
    let fields = fields(message)?;
    let mut metadata = Map::new();
    for (number, name) in [(1, "name"), (2, "generateName"), (3, "namespace")] {
        if let Some(text) = text(&fields, number).filter(|text| !text.is_empty()) {
            metadata.insert(name.to_owned(), text.into());
        }
    }
    let plain = |value: &[u8]| Some(Value::String(String::from_utf8(value.to_vec()).ok()?));
    put(&mut metadata, "labels", map(&fields, 11, plain)?);
    put(&mut metadata, "annotations", map(&fields, 12, plain)?);
    Some(Value::Object(metadata))
}

fn put(object: &mut Map<String, Value>, name: &str, map: Map<String, Value>) {
    if !map.is_empty() {
        object.insert(name.to_owned(), Value::Object(map));
    }
}

fn put_flag(object: &mut Map<String, Value>, fields: &[Field<'_>], number: u64) {
    if let Some((_, Wire::Number(value))) = fields.iter().find(|(n, _)| *n == number) {
        object.insert("immutable".to_owned(), json!(*value != 0));
    }
}

/// Number and value.
type Field<'a> = (u64, Wire<'a>);

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message; none if it is not well-formed.
fn fields(mut rest: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let tag = number(&mut rest)?;
        let value = match tag & 7 {
            0 => Wire::Number(number(&mut rest)?),
            1 => {
                rest = rest.get(8..)?;
                continue;
            }
            2 => {
                let length = usize::try_from(number(&mut rest)?).ok()?;
                let (value, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Wire::Bytes(value)
            }
            5 => {
                rest = rest.get(4..)?;
                continue;
            }
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

/// A number of variable length.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn bytes<'a>(fields: &[Field<'a>], number: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|(n, value)| match value {
        Wire::Bytes(bytes) if *n == number => Some(*bytes),
        _ => None,
    })
}

fn text(fields: &[Field<'_>], number: u64) -> Option<String> {
    String::from_utf8(bytes(fields, number)?.to_vec()).ok()
}

/// A map of texts to values that `convert` reads; none if one of them cannot be read.
fn map(
    all: &[Field<'_>],
    number: u64,
    convert: impl Fn(&[u8]) -> Option<Value>,
) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    for (n, value) in all {
        if let (true, Wire::Bytes(entry)) = (*n == number, value) {
            let entry = fields(entry)?;
            let value = convert(bytes(&entry, 2).unwrap_or_default())?;
            map.insert(text(&entry, 1).unwrap_or_default(), value);
        }
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes: short ones, so that one byte encodes their length.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).unwrap()][..], value].concat()
    }

    fn message(version: &str, kind: &str, raw: &[u8]) -> Request {
        let of_type = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        let mut request = Request::new(http::Method::POST, "/api/v1/namespaces");
        request.content_type = Some("application/vnd.kubernetes.protobuf".to_owned());
        request.body = [MAGIC, &field(1, &of_type), &field(2, raw)].concat();
        request
    }

    fn json_of(request: &Request) -> Option<Value> {
        Some(serde_json::from_slice(&to_json(request)?).unwrap())
    }

    #[test]
    fn what_kubectl_creates_is_read() {
        let label = [field(1, b"a"), field(2, b"b")].concat();
        let metadata = [field(1, b"n"), field(11, &label)].concat();
        let namespace =
            message("v1", "Namespace", &[field(1, &metadata), field(2, b""), field(3, b"")].concat());
        let read =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b"}}});
        assert_eq!(json_of(&namespace), Some(read));

        let data = [field(1, b"token"), field(2, b"s3cret")].concat();
        let secret =
            [field(1, &field(1, b"s")), field(2, &data), field(3, b"Opaque"), vec![5 << 3, 1]].concat();
        let read = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque",
            "data": {"token": "czNjcmV0"}, "immutable": true});
        assert_eq!(json_of(&message("v1", "Secret", &secret)), Some(read));
    }

    #[test]
    fn unknown_or_malformed_input_is_unchanged() {
        let metadata = field(1, &field(1, b"p"));
        assert_eq!(json_of(&message("v1", "Pod", &metadata)), None);
        let mut cut = message("v1", "Namespace", &metadata);
        cut.body.pop();
        assert_eq!(json_of(&cut), None);
        let mut other = message("v1", "Namespace", &metadata);
        other.content_type = Some("application/json".to_owned());
        assert_eq!(json_of(&other), None);
        let endless = [MAGIC, &[0xff; 20]].concat();
        assert_eq!(json_of(&Request { body: endless, ..message("v1", "Namespace", b"") }), None);
    }
}
