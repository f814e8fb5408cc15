use super::*;

#[test]
fn a_refusal_names_a_time_only_until_it_is_tried_again() {
    // A change was begun and given up: too much was in use.
    let mut status = serde_json::to_value(&*ready().object.status).unwrap();
    let message = "pods: shop-web still uses 1";
    status["refused"] = json!({"hard": {"pods": "0"}, "message": message, "until": "2026-01-01T00:05:00Z"});
    let at = |time: &str, status: &Value| {
        let time = ServerTime::certain(time.parse().unwrap());
        Observation { object: object("0", &json!({}), status), time, ..ready() }
    };
    let given_up = plan(&at("2026-01-01T00:00:00Z", &status));
    let until = format!("{message}; tried again at 2026-01-01T00:05:00Z");
    assert_eq!(why(&given_up), (Reason::QuotaRefused, until));
    let status = serde_json::to_value(&given_up.status).unwrap();
    let same = at("2026-01-01T00:04:00Z", &status);
    assert!(plan(&same).is_steady(&same.object.status));
    // Then it is refused before anything is begun, as long as that is so.
    let refused = plan(&at("2026-01-01T00:06:00Z", &status));
    let said =
        "pods: shop-web uses 1 and gave 0 to its children: ask for at least 1, or remove some of it first";
    assert_eq!(why(&refused), (Reason::QuotaRefused, said.to_owned()));
    let status = serde_json::to_value(&refused.status).unwrap();
    let used =
        Observation { quota: Some(quota("shop-web", "4", "0", "2")), ..at("2026-01-01T00:07:00Z", &status) };
    assert!(plan(&used).is_steady(&used.object.status), "the numbers are those of when it was refused");
}
