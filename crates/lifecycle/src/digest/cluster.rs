//! A short name for all fields of a cluster manager that decide.
//!
//! Records of namespaces name it, and `settle` begins again where it changes. A version of Coppice that decides
//! differently on the same fields writes another [`VERSION`], so that what becomes due by it settles first.

use coppice_api::cluster_manager::{
    ClusterNamespaceManagerSpec, ClusterPolicy, ClusterThen, ClusterWhen, Delete, Mode, NamespaceSelector,
    NamespaceTtl, PhaseCondition, PolicyPhase,
};
use coppice_quantity::Duration;

use super::canonical::{Encoder, select};
use super::{hex, shorten};

/// What these digests begin with.
const VERSION: &str = "c1:";

/// The digest of a spec: of every field but `suspend`. Where the order means nothing, it changes nothing.
pub(crate) fn digest(spec: &ClusterNamespaceManagerSpec) -> String {
    let ClusterNamespaceManagerSpec { mode, suspend: _, priority, selector, settle, ttl, policies } = spec;
    let mut out = Encoder(Vec::with_capacity(256));
    out.field("mode", mode.as_str());
    if *priority != 0 {
        out.field("priority", &priority.to_string());
    }
    let NamespaceSelector { names, exclude, labels } = selector;
    sorted(&mut out, "names", names.iter().flatten());
    sorted(&mut out, "exclude", exclude.iter().flatten());
    select(&mut out, labels.as_ref());
    out.field("settle", &settle.as_secs().to_string());
    if let Some(NamespaceTtl { after }) = ttl {
        out.field("ttl", &after.as_secs().to_string());
    }
    let mut policies: Vec<&ClusterPolicy> = policies.iter().collect();
    policies.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for one in policies {
        out.within("policy", |out| policy(out, one));
    }
    format!("{VERSION}{}", hex(&shorten(&out.0)))
}

fn policy(out: &mut Encoder, policy: &ClusterPolicy) {
    let ClusterPolicy { name, mode, when, then } = policy;
    out.field("name", name);
    if let Some(mode) = mode {
        out.field("mode", Mode::as_str(*mode));
    }
    let ClusterWhen { phase } = when;
    if let Some(PhaseCondition { phases, lasting }) = phase {
        out.within("phase", |out| {
            sorted(
                out,
                "in",
                phases.iter().map(|phase| match phase {
                    PolicyPhase::Stale => "Stale",
                }),
            );
            out.seconds("for", *lasting, Duration::ZERO);
        });
    }
    let ClusterThen { delete } = then;
    if let Some(Delete { notice }) = delete {
        out.within("delete", |out| out.seconds("notice", *notice, Duration::ZERO));
    }
}

/// A set, by its name.
fn sorted(out: &mut Encoder, name: &str, words: impl Iterator<Item = impl AsRef<str>>) {
    let mut words: Vec<_> = words.collect();
    if words.is_empty() {
        return;
    }
    words.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    out.within(name, |out| words.iter().for_each(|word| out.word(word.as_ref())));
}
