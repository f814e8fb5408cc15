use std::sync::Mutex;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_clusters_api::Issuer;
use coppice_scripted::{Answer, NOW, scripted};
use serde_json::json;

use super::*;

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
    )
}

fn secret(server: &str) -> Answer {
    let value = BASE64_STANDARD.encode(kubeconfig(server));
    Answer::Object(200, json!({"type": "Opaque", "data": {"kubeconfig": value}}))
}

fn source() -> Source {
    Source::new("team", &SecretKey { name: "target".to_owned(), key: "kubeconfig".to_owned() })
}

fn targets() -> Targets {
    Targets::new(Clock::following_tokio(NOW), Unencrypted::Nowhere)
}

/// Clients for the API server here, whose answer about the Secret can be changed.
fn here(answer: Answer) -> (Clients, Arc<Mutex<Answer>>) {
    let answer = Arc::new(Mutex::new(answer));
    let now = Arc::clone(&answer);
    (scripted(move |_, _, _| now.lock().unwrap().clone()).0, answer)
}

/// What is said of a kubeconfig that is not used.
fn unusable(error: ReadError) -> Failure {
    let ReadError::Unusable(failure) = error else { panic!("{error}") };
    failure
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_was_read_is_used_for_a_revocation_when_its_secret_is_gone() {
    let (targets, (clients, answer)) = (targets(), here(secret("https://a")));
    assert_eq!(targets.fact(&source()), KubeconfigFact::Unread);
    assert!(targets.read(&clients, &source()).await.unwrap().is_some());
    *answer.lock().unwrap() = Answer::Refused(404);
    let used = targets.of(&clients, &source(), true).await.unwrap();
    assert_eq!(used.kubeconfig.cluster.server, "https://a");
    let failure = unusable(targets.of(&clients, &source(), false).await.err().unwrap());
    assert_eq!(failure.reason, Reason::KubeconfigMissing);
    // By a replica that has never read it nothing can be revoked; nor once nobody uses it any more.
    let failure = super::Targets::new(Clock::following_tokio(NOW), Unencrypted::Nowhere);
    assert!(failure.of(&clients, &source(), true).await.is_err());
    targets.retain(&BTreeSet::new());
    assert!(targets.of(&clients, &source(), true).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_is_read_again_after_a_time_and_when_it_has_changed() {
    let (targets, (clients, answer)) = (targets(), here(secret("https://a")));
    let first = targets.read(&clients, &source()).await.unwrap().unwrap().cluster.endpoint();
    assert_eq!(targets.fact(&source()), KubeconfigFact::Endpoint(first.clone()));
    tokio::time::advance(READ_AGAIN * 2).await;
    assert_eq!(targets.fact(&source()), KubeconfigFact::Unread);
    *answer.lock().unwrap() = secret("https://b");
    let second = targets.read(&clients, &source()).await.unwrap().unwrap().cluster.endpoint();
    assert_ne!(first, second);
    targets.changed("team", "another");
    assert_eq!(targets.fact(&source()), KubeconfigFact::Endpoint(second));
    targets.changed("team", "target");
    assert_eq!(targets.fact(&source()), KubeconfigFact::Unread);
    *answer.lock().unwrap() = secret("http://127.0.0.1:1");
    let failure = unusable(targets.read(&clients, &source()).await.unwrap_err());
    assert_eq!(failure.reason, Reason::KubeconfigRefused);
    assert!(failure.message.contains("https://"), "{failure}");
    assert_eq!(targets.fact(&source()), KubeconfigFact::Unusable);
    // Whether it is there is not known where nobody says so.
    for unknown in [Answer::Refused(403), Answer::Refused(500), Answer::Never] {
        targets.changed("team", "target");
        *answer.lock().unwrap() = unknown;
        let error = targets.of(&clients, &source(), false).await.err().unwrap();
        assert!(matches!(error, ReadError::Unknown { .. }), "{error}");
        assert_eq!(targets.fact(&source()), KubeconfigFact::Unread);
    }
    *answer.lock().unwrap() = Answer::Object(200, json!({"type": "Opaque", "data": {"another": ""}}));
    let failure = unusable(targets.read(&clients, &source()).await.unwrap_err());
    assert_eq!(failure.reason, Reason::KubeconfigMissing);
    assert!(failure.message.contains("no key kubeconfig"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_hangs_takes_no_more_than_its_places() {
    let (targets, (clients, answer)) = (targets(), here(secret("https://hangs")));
    let hangs = targets.of(&clients, &source(), false).await.unwrap();
    assert!(!targets.is_busy(&source()));
    let mut places: Vec<_> = (0..MAX_AT_ONCE).map(|_| targets.place(&hangs).unwrap()).collect();
    assert!(targets.is_busy(&source()) && targets.place(&hangs).is_none());
    *answer.lock().unwrap() = secret("https://answers");
    let another = Source { name: "another".to_owned(), ..source() };
    let answers = targets.of(&clients, &another, false).await.unwrap();
    assert!(!targets.is_busy(&another) && targets.place(&answers).is_some());
    places.pop();
    assert!(!targets.is_busy(&source()) && targets.place(&hangs).is_some());
}

#[tokio::test(start_paused = true)]
async fn all_targets_that_did_not_answer_take_a_quarter_of_the_workers_and_each_of_them_one() {
    let targets = targets().with_workers(NonZeroUsize::new(8).unwrap());
    let (clients, answer) = here(Answer::Refused(404));
    let mut known = Vec::new();
    for server in ["https://a", "https://b", "https://c", "https://answers"] {
        *answer.lock().unwrap() = secret(server);
        let source = Source { name: server.to_owned(), ..source() };
        known.push((targets.of(&clients, &source, false).await.unwrap(), source));
    }
    for (target, _) in &known[..3] {
        targets.answered(target, false);
    }
    let place = |n: usize| targets.place(&known[n].0);
    let is_busy = |n: usize| targets.is_busy(&known[n].1);
    let first = place(0).unwrap();
    assert!(is_busy(0) && place(0).is_none(), "one at a time");
    let second = place(1).unwrap();
    assert!(is_busy(2) && place(2).is_none(), "two of eight workers");
    let healthy = [place(3).unwrap(), place(3).unwrap()];
    assert!(is_busy(3), "of one target no more than that, either");
    drop((first, healthy));
    assert!(!is_busy(2) && place(2).is_some());
    // One that answers again is as the others.
    targets.answered(&known[1].0, true);
    let _others = place(0).unwrap();
    assert!(!is_busy(1) && place(1).is_some());
    drop(second);
    // Nobody uses it any more, and nothing is known of it.
    targets.retain(&BTreeSet::new());
    assert!(targets.state().silent.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_gets_no_answer_of_a_server_by_a_kubeconfig_of_theirs_slows_nobody_else() {
    let (targets, (clients, answer)) = (targets(), here(secret("https://a")));
    let right = targets.of(&clients, &source(), false).await.unwrap();
    // Nothing that has this name is there.
    let wrong = kubeconfig("https://a").replace("'https://a'", "'https://a', tls-server-name: b");
    let data = json!({"kubeconfig": BASE64_STANDARD.encode(wrong)});
    *answer.lock().unwrap() = Answer::Object(200, json!({"type": "Opaque", "data": data}));
    let another = Source { name: "another".to_owned(), ..source() };
    let wrong = targets.of(&clients, &another, false).await.unwrap();
    targets.answered(&wrong, false);
    let _first = targets.place(&right).unwrap();
    assert!(targets.is_busy(&another) && targets.place(&wrong).is_none(), "one at a time");
    assert!(!targets.is_busy(&source()) && targets.place(&right).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_targets_of_one_namespace_take_half_of_the_workers() {
    let targets = targets().with_workers(NonZeroUsize::new(4).unwrap());
    let of = |name: &str| Source { name: name.to_owned(), ..source() };
    let elsewhere = Source { namespace: "another".to_owned(), ..source() };
    let both = [targets.share(&of("a")).unwrap(), targets.share(&of("b")).unwrap()];
    assert!(targets.share(&of("c")).is_none(), "two of four workers");
    assert!(targets.share(&elsewhere).is_some());
    drop(both);
    assert!(targets.share(&of("c")).is_some());
}

#[tokio::test(start_paused = true)]
async fn clients_of_64_targets_are_kept() {
    let (targets, (clients, _)) = (targets(), here(secret("https://a")));
    let at = |n: usize| Source { name: format!("target-{n}"), ..source() };
    for n in 0..=MAX_CLIENTS {
        let kubeconfig = targets.read(&clients, &at(n)).await.unwrap().unwrap();
        assert!(targets.kept_clients(&at(n), &kubeconfig).is_none());
        targets.keep_clients(&at(n), &kubeconfig, &clients);
    }
    let state = targets.state();
    assert_eq!(state.known.len(), MAX_CLIENTS + 1, "every kubeconfig is kept");
    assert!(state.known[&at(0)].clients.is_none(), "used the longest time ago");
    assert!((1..=MAX_CLIENTS).all(|n| state.known[&at(n)].clients.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cluster_api_did_not_make_is_not_used() {
    let source = Source::of_cluster("team", "shop");
    for (type_, cluster, expected) in [
        ("cluster.x-k8s.io/secret", "shop", None),
        ("Opaque", "shop", Some(Reason::KubeconfigRefused)),
        ("cluster.x-k8s.io/secret", "other", Some(Reason::KubeconfigRefused)),
    ] {
        let labels = json!({"cluster.x-k8s.io/cluster-name": cluster});
        let value = BASE64_STANDARD.encode(kubeconfig("https://a"));
        let secret = json!({"type": type_, "metadata": {"labels": labels}, "data": {"value": value}});
        let (targets, (clients, _)) = (targets(), here(Answer::Object(200, secret)));
        let read = targets.read(&clients, &source).await;
        assert_eq!(read.err().map(|error| unusable(error).reason), expected, "{type_} {cluster}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shoot_is_reached_for_some_minutes_with_what_its_garden_issued_and_that_is_never_the_gardens() {
    let (targets, (clients, _)) = (targets(), here(secret("https://garden")));
    let shoot = |name: &str| Source::of_shoot(source(), Shoot::new("dev", name, Issuer::GardenerAdmin));
    let (shop, other) = (shoot("shop"), shoot("other"));
    assert_eq!(targets.fact(&shop), KubeconfigFact::Unread);
    assert!(targets.read(&clients, &shop).await.unwrap().is_some());
    assert_eq!(targets.fact(&shop), KubeconfigFact::OfGarden);
    assert!(targets.shoot(&shop).is_none(), "nobody has issued one");
    let issued = kubeconfig::parse(kubeconfig("https://shop").as_bytes(), Unencrypted::Nowhere).unwrap();
    let kept = targets.keep_shoot(&shop, issued).await.unwrap();
    assert_eq!(kept.kubeconfig.cluster.server, "https://shop");
    assert!(targets.shoot(&shop).is_some() && targets.shoot(&other).is_none());
    let viewer = Source::of_shoot(source(), Shoot::new("dev", "shop", Issuer::GardenerViewer));
    assert!(targets.shoot(&viewer).is_none(), "with no more rights than it takes");
    // Who waits for its garden waits for it.
    let (_, garden) = shop.shoot().unwrap();
    let garden = targets.of(&clients, &garden, false).await.unwrap();
    assert_eq!(garden.kubeconfig.cluster.server, "https://garden");
    let places: Vec<_> = std::iter::from_fn(|| targets.place(&garden)).collect();
    assert!(targets.is_busy(&shop) && targets.place(&kept).is_some());
    drop(places);
    assert!(!targets.is_busy(&shop));
    // Another kubeconfig of the garden, one that the Shoot does not take, and one that expires soon are not used any more.
    targets.changed("team", "target");
    assert!(targets.shoot(&shop).is_none());
    targets.keep_shoot(&shop, kept.kubeconfig.clone()).await.unwrap();
    targets.remove_shoot_kubeconfig(&shop);
    assert!(targets.shoot(&shop).is_none());
    targets.keep_shoot(&shop, kept.kubeconfig).await.unwrap();
    tokio::time::advance(SHOOT_REACHED).await;
    assert!(targets.shoot(&shop).is_none());
}
