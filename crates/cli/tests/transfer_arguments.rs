//! The arguments and the help of `coppice transfer`, `coppice transfer approve` and `coppice give-back`.

use crate::support::run;

#[test]
fn bad_arguments_say_what_to_write() {
    let transfer = |rest: &str| format!("coppice transfer shop-web --to shop-api {rest}");
    let long = "x".repeat(1025);
    let namespace = "write a namespace's name: lower-case letters, digits and '-', at most 63";
    for (line, said) in [
        (
            transfer("--amount pods --reason test"),
            "invalid value 'pods' for '--amount <RESOURCE=AMOUNT>': write RESOURCE=AMOUNT, such as pods=5 or memory=2Gi",
        ),
        (
            transfer("--amount pods=1,disk=1 --reason test"),
            "invalid value 'disk=1' for '--amount <RESOURCE=AMOUNT>': \"disk\" is not a resource that quotas count: write one such \
             as cpu, limits.memory, requests.storage, pods, count/deployments.apps or requests.example.com/gpu",
        ),
        (
            transfer("--amount pods=1.5 --reason test"),
            "invalid value 'pods=1.5' for '--amount <RESOURCE=AMOUNT>': pods: 1500m is not a whole number, and objects are counted: \
             write one without a fraction",
        ),
        (
            transfer("--amount pods=0 --reason test"),
            "invalid value 'pods=0' for '--amount <RESOURCE=AMOUNT>': pods: 0 moves nothing: write more than 0",
        ),
        (
            transfer("--amount cpu=-1 --reason test"),
            "invalid value 'cpu=-1' for '--amount <RESOURCE=AMOUNT>': cpu: -1 moves nothing: write more than 0",
        ),
        (transfer("--amount pods=1 --reason "), "invalid value '' for '--reason <TEXT>': write what for"),
        (
            transfer(&format!("--amount pods=1 --reason {long}")),
            "' for '--reason <TEXT>': it has 1025 characters; at most 1024 are accepted",
        ),
        (
            "coppice transfer a/b --to shop-api --amount pods=1 --reason test".to_owned(),
            &format!("invalid value 'a/b' for '<NAMESPACE>': {namespace}"),
        ),
        (
            "coppice transfer shop-web --to Shop --amount pods=1 --reason test".to_owned(),
            &format!("invalid value 'Shop' for '--to <NAMESPACE>': {namespace}"),
        ),
        (
            "coppice transfer shop-web --amount pods=1".to_owned(),
            "the following required arguments were not provided:\n  --to <NAMESPACE>\n  --reason <TEXT>",
        ),
        (
            transfer("--reason test"),
            "the following required arguments were not provided:\n  --amount <RESOURCE=AMOUNT>",
        ),
        (
            transfer("--amount pods=1 --reason test --wait=0s"),
            "invalid value '0s' for '--wait[=<DURATION>]': zero changes nothing: write at least 1s",
        ),
        (
            "coppice give-back shop-web".to_owned(),
            "the following required arguments were not provided:\n  --amount <RESOURCE=AMOUNT>",
        ),
        (
            "coppice transfer approve more".to_owned(),
            "invalid value 'more' for '<NAMESPACE/NAME>': write NAMESPACE/NAME of a QuotaTransfer, in lower-case letters, digits, \
             '-' and '.'",
        ),
        (
            transfer("--amount pods=1 --reason test approve shop-web/more"),
            "the subcommand 'approve' cannot be used with:",
        ),
    ] {
        let ran = run(&line, "");
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
    }
    let twice = run(&transfer("--amount cpu=1 --amount requests.cpu=2 --reason test"), "");
    let said = "error: --amount: cpu is there twice: write one amount of each resource\n";
    assert_eq!((twice.code, twice.out.as_str(), twice.err.as_str()), (1, "", said));
}

#[test]
fn help_says_how_transfers_are_asked_for_and_approved() {
    for (line, parts) in [
        (
            "coppice transfer --help",
            &[
                "Usage: coppice transfer [OPTIONS] --to <NAMESPACE> --reason <TEXT> --amount <RESOURCE=AMOUNT> <NAMESPACE>",
                "coppice transfer <COMMAND>",
                "approve Approve a transfer of quota that somebody asked for",
                "--wait[=<DURATION>]",
                "3 with --wait: it waits for approval, was refused, or has not ended in time",
            ][..],
        ),
        (
            "coppice transfer approve --help",
            &[
                "Usage: coppice transfer approve [OPTIONS] <NAMESPACE/NAME>",
                "--dry-run",
                "Exit codes: 0 approved",
            ],
        ),
        (
            "coppice give-back --help",
            &[
                "Usage: coppice give-back [OPTIONS] --amount <RESOURCE=AMOUNT> <NAMESPACE>",
                "[default: \"given back\"]",
                "3 with --wait: it was refused, or has not ended in time",
            ],
        ),
        (
            "coppice --help",
            &["transfer Transfer quota that a namespace does not use", "give-back Give quota"],
        ),
    ] {
        let ran = run(line, "");
        // Where lines break depends on the terminal.
        let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(ran.code, 0, "{ran:?}");
        for part in parts {
            assert!(words.contains(part), "{line}: {part} is missing in\n{}", ran.out);
        }
    }
}
