//! The route of a transfer through its tree. Pure.

use coppice_api::names::LABEL_DEPTH_SUFFIX;
use k8s_openapi::api::core::v1::Namespace;
use thiserror::Error;

/// Why there is no route for a transfer. The message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum NoRoute {
    #[error("namespace {0} is both the source and the target: name another one with --to")]
    Itself(String),
    #[error(
        "namespace {0} belongs to no tree: quota is transferred between namespaces of one tree; `coppice tree` shows those that \
         there are"
    )]
    Outside(String),
    #[error(
        "the labels of namespace {0} about its tree do not fit together: see whether coppice-trees runs (kubectl -n \
         coppice-system get deployment coppice-trees), and try again"
    )]
    Unclear(String),
    #[error(
        "namespace {namespace} belongs to the tree of namespace {root}, and namespace {to} to that of {other}: quota is \
         transferred between namespaces of one tree"
    )]
    OtherTree { namespace: String, root: String, to: String, other: String },
    #[error(
        "namespace {to} cannot be read ({why}): name the nearest namespace that {namespace} and {to} both are or are below of: \
         --through with one of {}", .known.join(", ")
    )]
    Unreadable { namespace: String, to: String, why: String, known: Vec<String> },
    #[error("--through: namespace {namespace} is not below {through}: write one of {}", .known.join(", "))]
    NotAbove { namespace: String, through: String, known: Vec<String> },
    #[error(
        "--through: {through} is not the nearest namespace that {namespace} and {to} both are or are below of, which is \
         {nearest}: leave --through out"
    )]
    NotNearest { namespace: String, to: String, through: String, nearest: String },
    #[error(
        "namespace {0} is the root of its tree, and nothing is above it: make the quota of the tree smaller instead, in \
         spec.quota.hard of its NamespaceTree"
    )]
    Root(String),
}

/// The names from the root of its tree down to a namespace, by its labels, which Coppice alone writes.
pub(crate) fn path(namespace: &Namespace) -> Result<Vec<String>, NoRoute> {
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    let labels = namespace.metadata.labels.iter().flatten();
    let above = labels.filter_map(|(key, depth)| Some((depth, key.strip_suffix(LABEL_DEPTH_SUFFIX)?)));
    let above: Vec<_> = above.collect();
    if above.is_empty() {
        return Err(NoRoute::Outside(name.to_owned()));
    }
    // How far the namespace is below each of them: every number from that of the root down to 0.
    let at = |depth: usize| above.iter().find(|(at, _)| **at == depth.to_string()).map(|(_, name)| *name);
    let names: Option<Vec<_>> = (0..above.len()).rev().map(at).collect();
    let names = names.filter(|names| names.last() == Some(&name));
    let names = names.ok_or_else(|| NoRoute::Unclear(name.to_owned()))?;
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// What is known of the target.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The names from the root down to it.
    Path(Vec<String>),
    /// This user may not read it, and why.
    Unreadable(String),
}

/// The route of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The namespaces from the source up to the one where it turns.
    up: Vec<String>,
    /// Those from there down to the target; none if they are not known.
    down: Option<Vec<String>>,
    to: String,
}

impl Route {
    /// To the namespace right above.
    pub(crate) fn to_parent(source: &[String]) -> Result<Self, NoRoute> {
        match source {
            [.., parent, name] => Ok(Self {
                up: vec![name.clone(), parent.clone()],
                down: Some(Vec::new()),
                to: parent.clone(),
            }),
            _ => Err(NoRoute::Root(source.last().cloned().unwrap_or_default())),
        }
    }

    /// To a namespace above, or the source itself; none if the target is no such namespace.
    pub(super) fn to_ancestor(
        source: &[String],
        to: &str,
        through: Option<&str>,
    ) -> Option<Result<Self, NoRoute>> {
        let at = source.iter().position(|name| name == to)?;
        if at + 1 == source.len() {
            return Some(Err(NoRoute::Itself(to.to_owned())));
        }
        Some(Self::turning(source, at + 1, to, Some(Vec::new())).through_nearest(through))
    }

    /// To another namespace. `named`: as `--through` says, which is needed where the target cannot be read.
    pub(super) fn find(
        source: &[String],
        to: &str,
        target: &Target,
        named: Option<&str>,
    ) -> Result<Self, NoRoute> {
        let namespace = || source.last().cloned().unwrap_or_default();
        let known = || source.iter().rev().cloned().collect();
        match (target, named) {
            (Target::Path(path), named) => {
                let common = source.iter().zip(path).take_while(|(one, other)| one == other).count();
                if common == 0 {
                    let root = |path: &[String]| path.first().cloned().unwrap_or_default();
                    let (root, other) = (root(source), root(path));
                    return Err(NoRoute::OtherTree {
                        namespace: namespace(),
                        root,
                        to: to.to_owned(),
                        other,
                    });
                }
                Self::turning(source, common, to, Some(path[common..].to_vec())).through_nearest(named)
            }
            (Target::Unreadable(_), Some(through)) => match source.iter().position(|name| name == through) {
                Some(at) => Ok(Self::turning(source, at + 1, to, None)),
                None => Err(NoRoute::NotAbove {
                    namespace: namespace(),
                    through: through.to_owned(),
                    known: known(),
                }),
            },
            (Target::Unreadable(why), None) => Err(NoRoute::Unreadable {
                namespace: namespace(),
                to: to.to_owned(),
                why: why.clone(),
                known: known(),
            }),
        }
    }

    fn turning(source: &[String], common: usize, to: &str, down: Option<Vec<String>>) -> Self {
        let up = source[common.saturating_sub(1)..].iter().rev().cloned().collect();
        Self { up, down, to: to.to_owned() }
    }

    fn through_nearest(self, named: Option<&str>) -> Result<Self, NoRoute> {
        match named.filter(|named| *named != self.through()) {
            None => Ok(self),
            Some(named) => Err(NoRoute::NotNearest {
                namespace: self.source().to_owned(),
                through: named.to_owned(),
                nearest: self.through().to_owned(),
                to: self.to,
            }),
        }
    }

    pub(crate) fn source(&self) -> &str {
        self.up.first().map_or("", |name| name)
    }

    pub(crate) fn to(&self) -> &str {
        &self.to
    }

    /// The nearest namespace that the source and the target both are or are below of.
    pub(crate) fn through(&self) -> &str {
        self.up.last().map_or("", |name| name)
    }

    /// Whether somebody has to approve it.
    pub(crate) fn needs_approval(&self) -> bool {
        needs_approval(self.source(), self.to(), self.through())
    }

    /// Who may approve it.
    pub(crate) fn approvers(&self) -> String {
        approvers(self.source(), self.to(), self.through())
    }

    /// The namespaces from the source to the target.
    pub(crate) fn names(&self) -> String {
        let up = self.up.join(", ");
        match &self.down {
            None => {
                format!("{up}, and from there to {} (which namespaces are between is not known)", self.to)
            }
            Some(down) if down.is_empty() => up,
            Some(down) => format!("{up}, {}", down.join(", ")),
        }
    }
}

/// Giving to a namespace below, or back to one above, needs nobody's approval.
pub(super) fn needs_approval(source: &str, to: &str, through: &str) -> bool {
    through != source && through != to
}

fn approvers(source: &str, to: &str, through: &str) -> String {
    format!("somebody who may create QuotaTransfers in {source} and {to}, or in {through}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    fn namespace(name: &str, labels: &[(&str, &str)]) -> Namespace {
        let labels =
            labels.iter().map(|(of, depth)| (format!("{of}{LABEL_DEPTH_SUFFIX}"), (*depth).to_owned()));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        namespace.metadata.labels = Some(labels.chain([("team".to_owned(), "a".to_owned())]).collect());
        namespace
    }

    #[test]
    fn labels_say_where_a_namespace_is() {
        let web = [("shop", "2"), ("shop-web-x", "0"), ("shop-web", "1")];
        assert_eq!(path(&namespace("shop-web-x", &web)), Ok(names("shop/shop-web/shop-web-x")));
        assert_eq!(path(&namespace("shop", &[("shop", "0")])), Ok(names("shop")));
        assert_eq!(path(&namespace("a", &[])), Err(NoRoute::Outside("a".to_owned())));
        // One is missing, one is there twice, and the last is not the namespace itself.
        for wrong in
            [&[("shop", "2"), ("a", "0")][..], &[("shop", "0"), ("a", "0")], &[("shop", "1"), ("b", "0")]]
        {
            assert_eq!(path(&namespace("a", wrong)), Err(NoRoute::Unclear("a".to_owned())), "{wrong:?}");
        }
    }

    #[test]
    fn the_way_turns_at_the_nearest_namespace_that_both_are_below_of() {
        let source = names("shop/web/web-x");
        let find = |to: &str| {
            let last = names(to).last().cloned().unwrap();
            Route::find(&source, &last, &Target::Path(names(to)), None).unwrap()
        };
        for (to, through, route, approved) in [
            ("shop/web/web-y", "web", "web-x, web, web-y", true),
            ("shop/api/api-x", "shop", "web-x, web, shop, api, api-x", true),
            ("shop/web/web-x/deep/er", "web-x", "web-x, deep, er", false),
        ] {
            let found = find(to);
            assert_eq!((found.source(), found.through()), ("web-x", through), "{to}");
            assert_eq!((found.names().as_str(), found.needs_approval()), (route, approved), "{to}");
        }
        let up = Route::to_ancestor(&source, "shop", None).unwrap().unwrap();
        assert_eq!((up.through(), up.needs_approval()), ("shop", false));
        assert_eq!(up.names(), "web-x, web, shop");
        assert_eq!(Route::to_ancestor(&source, "api", None), None);
        assert_eq!(Route::to_ancestor(&source, "web", None).unwrap(), Route::to_parent(&source));
        let root = Route::to_parent(&names("shop")).unwrap_err().to_string();
        assert!(
            root.starts_with("namespace shop is the root of its tree") && root.contains("NamespaceTree"),
            "{root}"
        );
    }

    #[test]
    fn a_target_that_cannot_be_read_needs_the_namespace_where_the_way_turns() {
        let (source, hidden) = (names("shop/web"), Target::Unreadable("not you".to_owned()));
        let route = Route::find(&source, "api", &hidden, Some("shop")).unwrap();
        assert_eq!((route.through(), route.needs_approval()), ("shop", true));
        assert_eq!(
            route.names(),
            "web, shop, and from there to api (which namespaces are between is not known)"
        );
        assert!(!Route::find(&source, "web-x", &hidden, Some("web")).unwrap().needs_approval());
        let error =
            |target: &Target, named| Route::find(&source, "api", target, named).unwrap_err().to_string();
        assert_eq!(
            error(&hidden, None),
            "namespace api cannot be read (not you): name the nearest namespace that web and api both are or are below of: --through \
             with one of web, shop"
        );
        assert_eq!(
            error(&hidden, Some("api")),
            "--through: namespace web is not below api: write one of web, shop"
        );
        assert_eq!(
            error(&Target::Path(names("shop/api")), Some("web")),
            "--through: web is not the nearest namespace that web and api both are or are below of, which is shop: leave --through \
             out"
        );
        assert_eq!(
            error(&Target::Path(names("bank/api")), Some("web")),
            "namespace web belongs to the tree of namespace shop, and namespace api to that of bank: quota is transferred between \
             namespaces of one tree"
        );
    }
}
