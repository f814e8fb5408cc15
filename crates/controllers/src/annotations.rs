//! The annotations of namespaces that cluster managers name: the cache of namespaces keeps these, and no others.

use std::sync::{Mutex, PoisonError};

use coppice_lifecycle::facts::AnnotationKeys;

use crate::context::ControllerContext;

/// Has namespaces kept with the annotations that the cluster managers name. One at a time: what was looked up later must not
/// be replaced by what was looked up before.
#[derive(Debug, Default)]
pub(crate) struct KeptAnnotations(Mutex<()>);

impl KeptAnnotations {
    /// Has namespaces listed again if a cluster manager names an annotation that is not kept. What nobody names any more goes
    /// with the next list of this kind, and costs none of its own.
    pub(crate) fn update(&self, shared: &ControllerContext) {
        let one_at_a_time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = wanted(shared);
        if !shared.namespaces.current_context().contains(&wanted) {
            shared.namespaces.set_context(wanted);
        }
        drop(one_at_a_time);
    }
}

/// Whether every annotation that a cluster manager names has been listed.
pub(crate) fn synced(shared: &ControllerContext) -> bool {
    shared.namespaces.is_listed() && shared.namespaces.current_context().contains(&wanted(shared))
}

fn wanted(shared: &ControllerContext) -> AnnotationKeys {
    let managers = shared.cluster_managers.list("");
    let specs = managers
        .iter()
        .filter(|manager| !manager.terminating)
        .filter_map(|manager| manager.spec.as_ref().ok());
    AnnotationKeys::named(specs.flat_map(|spec| spec.annotation_keys()))
}
