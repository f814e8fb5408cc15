//! What is done by a garden: a Shoot is reached with a kubeconfig that the garden has issued, which is in memory alone; and Gardener's issuers
//! have their credentials issued there. A garden has places for those who ask it, as targets have.

use coppice_api::Reason;
use coppice_clusters::certificate::granted;
use coppice_clusters::kubeconfig::Kubeconfig;
use coppice_clusters::{IssueProgress, Progress, Validity};
use jiff::SignedDuration;
use tokio::time::Instant;

use super::super::issue::whole_second;
use super::{Applied, Memory, Work, answer_of, in_time, nowhere, observe};
use crate::target::{Failure, Target};
use crate::targets::{ReadError, SHOOT_SECONDS, Source};

impl Work<'_> {
    /// The target, as the user of its kubeconfig, or of one that a garden issues; none if there is no place in the garden.
    pub(super) async fn find(&self, ends: Instant, source: &Source) -> Result<Option<Target>, ReadError> {
        let targets = &self.controller.targets;
        if source.shoot().is_none() {
            let target = targets.of(&self.controller.clients, source, self.observed.deleting).await?;
            return Ok(Some(target));
        }
        if let Some(target) = targets.shoot(source) {
            return Ok(Some(target));
        }
        match self.issued_by_garden(ends, source, SHOOT_SECONDS).await? {
            Some((kubeconfig, _)) => Ok(Some(targets.keep_shoot(source, kubeconfig).await?)),
            None => Ok(None),
        }
    }

    /// Has a garden issue a kubeconfig for its Shoot; none if there is no place, or nobody knows of a Shoot.
    async fn issued_by_garden(
        &self,
        ends: Instant,
        source: &Source,
        seconds: u64,
    ) -> Result<Option<(Kubeconfig, Validity)>, ReadError> {
        let Some((shoot, of_garden)) = source.shoot() else { return Ok(None) };
        let targets = &self.controller.targets;
        let garden = targets.of(&self.controller.clients, &of_garden, self.observed.deleting).await?;
        let Some(_place) = targets.place(&garden) else { return Ok(None) };
        let issued = in_time(ends, garden.kubeconfig_of_shoot(self.permit, shoot, seconds)).await;
        self.controller.metrics.issuer_called(shoot.issuer(), answer_of(&issued));
        let is_silent = issued.as_ref().is_err_and(|failure| failure.reason == Reason::TargetUnreachable);
        targets.answered(&garden, !is_silent);
        Ok(Some(issued.map_err(|failure| self.throttle((&of_garden, &garden), failure))?))
    }

    /// Has Gardener issue the credential. What it granted counts, and a lost one is valid until it expires: nobody has its key.
    pub(super) async fn issue_by_garden(&self, memory: &mut Memory, credential: String) -> Applied {
        let Some(source) = observe::source(self.controller, self.access) else {
            return self.failed(&nowhere(&self.observed.spec.cluster)).await;
        };
        let (now, ttl) = (self.controller.now(), self.observed.spec.ttl);
        let (kubeconfig, certificate) = match self.issued_by_garden(memory.ends, &source, ttl.as_secs()).await
        {
            Ok(Some(issued)) => issued,
            Ok(None) => return Applied::Busy,
            Err(error) => return self.not_read(error).await,
        };
        let asked = SignedDuration::from_secs(ttl.as_secs_i64());
        match granted(whole_second(now), certificate, asked) {
            Ok(validity) => {
                memory.user = Some(kubeconfig.user);
                memory.progress = Progress::Issuing(credential, IssueProgress::Issued(validity));
                Applied::Again
            }
            Err(why) => self.failed(&Failure::new(Reason::VerificationFailed, why.to_string())).await,
        }
    }
}
