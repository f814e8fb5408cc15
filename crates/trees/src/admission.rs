//! What the admission webhook answers about objects of trees: early, in a sentence, what the controllers would say in status a moment
//! later. It holds nothing by itself: what has to hold, the controllers and the policies of the installation hold.
//!
//! Caches admit; what they would refuse is read again, so that nobody is refused for what is over by now. It writes nothing.

use std::sync::Arc;
use std::time::Duration;

use coppice_api::Reason;
use coppice_kinds::{QuotaTransfers, Subnamespaces};
use coppice_runtime::kind::Kind;
use coppice_runtime::read;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::context::TreeContext;
use crate::{quota_transfer, subnamespace};

/// So many refusals are read again at a time: what comes beyond that is not known.
const MAX_READS: usize = 8;
/// So long each may take: the API server waits 2 s for all of it.
const READ_WITHIN: Duration = Duration::from_millis(1500);

/// What is known of an object that the API server is asked to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Review {
    /// Nothing speaks against it.
    Allowed,
    /// It is not known whether something does.
    Unknown,
    /// It would not be carried out.
    Denied {
        /// As in its conditions.
        reason: Reason,
        /// What is wrong, and what to do.
        message: String,
    },
}

/// Reviews what is created and changed, on the caches of a replica.
pub struct Reviews {
    context: Arc<TreeContext>,
    at_once: Semaphore,
}

/// What is reviewed, as the API server sends it.
#[derive(Clone, Copy, Debug)]
pub struct Reviewed<'a> {
    /// The plural of its kind.
    pub resource: &'a str,
    /// What is to be stored, as JSON.
    pub object: &'a str,
    /// What is stored, as JSON; none if it is created.
    pub before: Option<&'a str>,
}

impl Reviews {
    pub(crate) fn new(context: Arc<TreeContext>) -> Self {
        Self { context, at_once: Semaphore::new(MAX_READS) }
    }

    /// What is known of it.
    pub async fn review(&self, reviewed: Reviewed<'_>) -> Review {
        if !self.context.synced() {
            return Review::Unknown;
        }
        match timeout(READ_WITHIN, self.decide(reviewed)).await {
            Ok(Ok(review)) => review,
            Ok(Err(error)) => {
                tracing::warn!(%error, resource = reviewed.resource, "an object could not be reviewed");
                Review::Unknown
            }
            Err(_) => Review::Unknown,
        }
    }

    async fn decide(&self, Reviewed { resource, object, before }: Reviewed<'_>) -> anyhow::Result<Review> {
        Ok(match resource {
            Subnamespaces::RESOURCE => {
                let decode = |text: &str| read::decoded::<Subnamespaces>(text.as_bytes(), &());
                let (object, before) = (decode(object)?, before.map(decode).transpose()?);
                subnamespace::review::review(&self.context, &self.at_once, object, before).await?
            }
            // What is asked for never changes.
            QuotaTransfers::RESOURCE if before.is_none() => {
                let object = read::decoded::<QuotaTransfers>(object.as_bytes(), &())?;
                quota_transfer::review::review(&self.context, &self.at_once, object).await?
            }
            _ => Review::Allowed,
        })
    }
}
