//! What the admission webhook answers about objects of trees.

use coppice_api::names::GROUP;
use coppice_serve::admission::{AdmissionRequest, AdmissionVerdict, Reviewer};
use coppice_trees::admission::{Review, Reviewed, Reviews};
use serde_json::value::RawValue;

/// What trees say of the objects that the API server asks about.
pub struct TreeReviewer(pub Reviews);

impl Reviewer for TreeReviewer {
    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionVerdict {
        let Some(object) = request.object.filter(|_| request.resource.group == GROUP) else {
            return AdmissionVerdict::Allowed;
        };
        let before = request.old_object.map(RawValue::get);
        let reviewed = Reviewed { resource: &request.resource.resource, object: object.get(), before };
        match self.0.review(reviewed).await {
            Review::Allowed => AdmissionVerdict::Allowed,
            Review::Unknown => AdmissionVerdict::Unknown,
            Review::Denied { reason, message } => {
                AdmissionVerdict::Denied { reason: reason.to_string(), message }
            }
        }
    }
}
