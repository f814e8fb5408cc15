//! `coppice tree`, from files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::run;
use serde_json::Value;

const TREES: &str = include_str!("fixtures/trees.yaml");

#[test]
fn a_tree_shows_what_each_namespace_has_and_why_one_is_not_ready() {
    let ran = run("coppice tree -f -", TREES);
    assert_eq!(ran.code, 3, "{}", ran.all());
    insta::assert_snapshot!("table", ran.all());
    insta::assert_snapshot!("wide", run("coppice tree shop -o wide --resource requests.cpu -f -", TREES).out);
}

#[test]
fn on_a_narrow_terminal_columns_are_left_out_and_names_shortened() {
    let table = |width: Option<usize>, line: &str| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut io = coppice_cli::Io {
            stdin: &mut TREES.as_bytes(),
            out: &mut out,
            err: &mut err,
            now: support::NOW.parse().unwrap(),
            color: false,
            width,
            progress: false,
            client: None,
        };
        coppice_cli::run(line.split(' ').map(Into::into), &mut io);
        let out = String::from_utf8(out).unwrap();
        out.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let line = "coppice tree -f -";
    let whole = table(None, line);
    assert_eq!(table(Some(87), line), whole, "it fits");
    let narrow = table(Some(80), line);
    assert_eq!(narrow[0], "NAMESPACE             PHASE     RESOURCE   REQUESTED   ALLOTTED   USED    FREE");
    assert_eq!(narrow[1], "shop                  Ready     cpu        10          10         250m    5750m");
    let narrower = table(Some(64), line);
    assert_eq!(narrower[0], "NAMESPACE          PHASE     RESOURCE   ALLOTTED   USED    FREE");
    assert_eq!(narrower[5], "└─ shop-web        Ready     cpu        4          1500m   2500m");
    assert_eq!(narrower[7], "   └─ sh…eb-test   Ready     cpu        0          0       0");
    for (width, lines) in [(80, narrow), (64, narrower)] {
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
    }
    let wide = "coppice tree -o wide -f -";
    assert_eq!(table(Some(64), wide), table(None, wide));
}

#[test]
fn a_namespace_is_shown_with_all_below_it() {
    let ran = run("coppice tree shop-web -f - --no-headers --resource pods", TREES);
    assert_eq!(
        ran.out,
        "shop-web           Ready   pods   12   12   2   3   7\n\
         └─ shop-web-test   Ready   pods   2    2    0   0   2\n"
    );
    assert_eq!(ran.code, 0, "both are ready: {}", ran.all());
    let names = run("coppice tree shop-web -o name -f -", TREES);
    assert_eq!(names.out, "namespace/shop-web\nnamespace/shop-web-test\n");
}

#[test]
fn programs_get_every_amount_by_its_name() {
    let report: Value = serde_json::from_str(&run("coppice tree -o json -f -", TREES).out).unwrap();
    let of = |name: &str| {
        let items = report["items"].as_array().unwrap();
        items.iter().find(|item| item["namespace"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    let web = of("shop-web");
    assert_eq!(
        (&web["path"], &web["depth"], &web["tree"]),
        (&"shop/shop-web".into(), &1.into(), &"shop".into())
    );
    // One name for each resource, and amounts as the API server prints them.
    assert_eq!(web["requested"], serde_json::json!({"cpu": "4", "pods": "12"}));
    assert_eq!(web["free"], serde_json::json!({"cpu": "2500m", "pods": "7"}));
    assert_eq!(of("shop-web-test")["depth"], 2);
    let refused = of("shop-api");
    assert_eq!((&refused["phase"], &refused["reason"]), (&"Refused".into(), &"QuotaRefused".into()));
    assert_eq!(refused["allotted"], Value::Null);
}

#[test]
fn a_picture_has_a_bar_for_each_resource_of_each_namespace() {
    let picture = run("coppice tree shop -o svg -f -", TREES);
    assert_eq!(picture.code, 3, "one is not ready: {}", picture.err);
    assert!(picture.out.starts_with("<svg ") && picture.out.ends_with("</svg>\n"), "{}", picture.out);
    for of in ["shop · cpu: 10", "shop · pods: 20", ">shop-web</text>"] {
        assert!(picture.out.contains(of), "{of}: {}", picture.out);
    }
    let cpu = run("coppice tree shop-web -o svg --resource cpu -f -", TREES);
    assert!(
        cpu.code == 0 && cpu.out.contains("shop-web · cpu: 4") && !cpu.out.contains("pods"),
        "{}",
        cpu.out
    );
}

/// The guide explains trees by those of these namespaces that are there.
#[test]
fn the_picture_in_the_guide_is_what_is_drawn() {
    const ITEM: &str = "  - apiVersion";
    let is_there = |item: &&str| !["shop-api", "shop-new"].iter().any(|name| item.contains(*name));
    let items: Vec<&str> = TREES.split(ITEM).filter(is_there).collect();
    let picture = run("coppice tree shop -o svg -f -", &items.join(ITEM));
    assert_eq!(picture.code, 0, "{}", picture.err);
    let in_guide = include_str!("../../../docs/guides/trees.svg");
    let drawn = &picture.out;
    assert!(
        drawn == in_guide,
        "docs/guides/trees.svg is another picture: write there what is drawn now:\n{drawn}"
    );
}

#[test]
fn bad_input_says_what_is_wrong_and_what_to_write() {
    let ran = run("coppice tree nothing -f -", TREES);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("there is no tree nothing, and no namespace nothing in one"), "{}", ran.err);
    let ran = run("coppice tree --resource storage -f -", TREES);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("requests.storage"), "{}", ran.err);
    let wrong = TREES.replace("spec: {}", "spec: {quotas: {}}");
    let ran = run("coppice tree -f -", &wrong);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains(
            "(Subnamespace shop-new): spec.quotas: unknown field; known here: cascadeUntil, metadata, quota"
        ),
        "{}",
        ran.err
    );
    assert_eq!(
        run("coppice tree -f -", "").err,
        "No trees found: an administrator creates a NamespaceTree.\n"
    );
}

#[test]
fn a_broken_ledger_is_named_and_hides_no_other_namespace() {
    let broken = TREES.replace(r#"{"allotment":{"cpu":"0","pods":"2"},"given":{}}"#, "{}");
    let ran = run("coppice tree -f -", &broken);
    assert!(
        ran.out.contains("shop/shop-web/shop-web-test: the annotation coppice.dev/ledger"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("└─ shop-web   "), "{}", ran.out);
}

/// A ring is no tree, and a file may have one.
#[test]
fn objects_that_name_each_other_end() {
    let object = |name: &str, parent: &str| {
        format!(
            "---\n{{apiVersion: coppice.dev/v1alpha1, kind: Subnamespace, metadata: {{name: {name}, namespace: {parent}}}, spec: {{}}, \
             status: {{namespaceUid: u}}}}\n"
        )
    };
    let ran = run("coppice tree a -o name -f -", &(object("a", "b") + &object("b", "a")));
    assert_eq!(ran.out, "namespace/a\nnamespace/b\nnamespace/a\n");
}

#[test]
fn other_commands_read_files_with_trees() {
    let ran = run("coppice plan -f -", TREES);
    assert_eq!(ran.code, 0, "{}", ran.all());
    let transfer = "---\n{apiVersion: coppice.dev/v1alpha1, kind: QuotaTransfer, metadata: {name: t, namespace: shop}, spec: {to: shop-web, \
                    through: shop, amount: {pods: '1'}, reason: r, requester: u}}\n";
    let ran = run("coppice plan -f -", &format!("{TREES}{transfer}"));
    assert_eq!(ran.code, 0, "{}", ran.all());
    let ran = run("coppice plan -f -", &format!("{TREES}{transfer}").replace("through: shop", "above: shop"));
    assert_eq!(ran.code, 1, "{}", ran.all());
    assert!(ran.err.contains("(QuotaTransfer t): spec.above: unknown field"), "{}", ran.err);
}
