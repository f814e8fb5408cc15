//! The names and filters of templates, as the documentation lists them and errors offer them.

/// A name of templates, as a path, and what it means. `[]` stands for an item of a list. What there is not is `none`, which is
/// written as nothing, or an empty list.
pub const NAMES: &[(&str, &str)] = &[
    (
        "about",
        "what the message is about, such as `DeletionAnnounced`: `for` in the JSON document, a keyword here",
    ),
    ("what", "what happens: a sentence without a full stop"),
    ("when", "when that happens, such as `not before 2026-01-02 15:04 UTC, in 23 hours`"),
    ("why", "why: a sentence without a full stop"),
    (
        "observing",
        "whether nothing will be deleted, since the cluster manager observes, or has no policy that deletes",
    ),
    ("observation", "that nothing will be deleted, where `observing`: a sentence without a full stop"),
    ("namespace", "the namespace's name"),
    ("uid", "its uid"),
    ("cluster", "the cluster's name, if it has one"),
    ("manager", "the cluster manager's name"),
    ("owner", "who owns the namespace"),
    ("deletion", "the deletion that the message announces or reports"),
    ("deletion.policy", "the policy"),
    ("deletion.at", "not before this instant; of one that the message reports, when the namespace was gone"),
    ("deletion.reason", "why: an enumerated reason"),
    (
        "deletion.losses",
        "what is lost with the namespace, as `status.notice.losses` has it; `losses` has it in words",
    ),
    ("deletion.losses.volumes", "the volumes that are bound"),
    ("deletion.losses.volumes[].claim", "the name of the PersistentVolumeClaim"),
    ("deletion.losses.volumes[].volume", "the name of the PersistentVolume"),
    ("deletion.losses.volumes[].capacity", "its capacity, such as `20Gi`"),
    ("deletion.losses.volumes[].reclaimPolicy", "what becomes of it without its claim"),
    ("deletion.losses.loadBalancers", "the Services of type LoadBalancer"),
    ("deletion.losses.loadBalancers[].service", "the name of the Service"),
    ("deletion.losses.loadBalancers[].addresses", "its addresses or host names"),
    ("deletion.losses.finalizers", "the finalizers that are not Kubernetes' own"),
    ("deletion.losses.finalizers[].finalizer", "the finalizer"),
    ("deletion.losses.finalizers[].kind", "the kind of the object that carries it"),
    ("deletion.losses.finalizers[].name", "the name of that object"),
    ("deletion.losses.more", "how many there are besides"),
    ("deletion.losses.unknown", "what of this could not be read, and why"),
    ("losses", "what becomes of what is outside of the namespace, line by line"),
    ("failing", "what is failing"),
    ("failing[].line", "what fails, why and for how long, in a line"),
    ("failing[].advice", "what to look at first: a line"),
    ("failing[].kind", "the kind of the object"),
    ("failing[].name", "its name"),
    ("failing[].reason", "why: an enumerated reason"),
    ("failing[].message", "the same for people"),
    ("failing[].source", "what says so"),
    ("failing[].since", "since when"),
    ("successor", "the namespace that has taken its place"),
    ("links", "links about the namespace, those with https alone"),
    ("links[].name", "what a link leads to"),
    ("links[].url", "its URL"),
    ("keep", "the command that keeps the namespace, as far as the limits of its cluster manager let it"),
    ("limitReached", "whether there is none because these limits are reached"),
    ("expiresAt", "when the namespace's time to live ends"),
    ("givenAt", "when the message was written down"),
    ("now", "the time of the message"),
];

/// The filters of templates.
pub const FILTERS: &[(&str, &str)] = &[
    ("absolute", "an instant, such as `expiresAt`, as `2026-01-02 15:04 UTC`"),
    ("relative", "an instant as `in 23 hours`"),
    ("first", "the first item of a list"),
    ("join", "the items of a list, with a text between them"),
    ("last", "the last item of a list"),
    ("length", "the number of items or characters"),
    ("lower", "in lower case"),
    ("replace", "with a text in place of another"),
    ("trim", "without spaces at the ends"),
    ("upper", "in upper case"),
];

/// Whether there is this name: `deletion.at`.
pub(crate) fn exists(path: &str) -> bool {
    NAMES.iter().any(|(name, _)| *name == path)
}

/// The names below this one, which ends with `.`; with an empty one, those that stand alone.
pub(crate) fn below(parent: &str) -> Vec<&'static str> {
    let rests = NAMES.iter().filter_map(|(name, _)| name.strip_prefix(parent));
    rests.filter(|rest| !rest.contains(['.', '['])).collect()
}

/// The lists with items that have names.
pub(crate) fn lists() -> Vec<&'static str> {
    let mut lists: Vec<_> = NAMES.iter().filter_map(|(name, _)| Some(name.split_once("[]")?.0)).collect();
    lists.dedup();
    lists
}
