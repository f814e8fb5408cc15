//! The admission webhook of the program of trees: the one that it serves on a cluster, without the connection.

use std::time::Duration;

use coppice_api::names::GROUP;
use coppice_operator::TreeReviewer;
use coppice_serve::admission::Admission;
use coppice_serve::port::HttpResponse;
use coppice_sim::server::Operation::{Create, Update};
use coppice_sim::{Webhook, WebhookConfiguration, WebhookRule};
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// As it is installed: `deploy/trees.yaml`.
pub const CONFIGURATION: WebhookConfiguration = WebhookConfiguration {
    name: "trees.coppice.dev",
    rules: &[
        WebhookRule { group: GROUP, resource: "subnamespaces", operations: &[Create, Update] },
        WebhookRule { group: GROUP, resource: "quotatransfers", operations: &[Create] },
    ],
    timeout: Duration::from_secs(2),
};

/// That of a replica.
pub(super) struct Served(pub(super) Admission<TreeReviewer>);

impl Webhook for Served {
    fn answer<'a>(&'a self, review: &'a [u8]) -> BoxFuture<'a, HttpResponse> {
        self.0.answer_to(review).boxed()
    }
}
