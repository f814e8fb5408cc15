//! Signed webhooks of channels: as those of policies, by a proxy and with authorities that the channel may name.

use super::{ChannelError, Deliverer, WebhookChannelRequest, proxy_of};
use crate::request::DeliverError;
use crate::webhook::{Delivered, Route, SendError};

/// How messages name the other side.
const SERVER: &str = "the webhook receiver";
/// The same where either may be at fault.
const BY_PROXY: &str = "the webhook receiver through proxy of the channel";

impl Deliverer {
    pub(super) async fn send_by_webhook(
        &self,
        request: WebhookChannelRequest,
    ) -> Result<Delivered, DeliverError> {
        let WebhookChannelRequest { webhook, channel } = request;
        let tls = match channel.ca_file.as_deref() {
            Some(file) => Some(self.tls(Some(file), &self.webhook_roots_pem).await?),
            None => None,
        };
        let route = Route { tls, proxy: proxy_of(channel.proxy.as_deref())? };
        let server = if channel.proxy.is_some() { BY_PROXY } else { SERVER };
        // The sentence about an authority names the setting of the channel.
        self.webhooks.send_by(webhook, route).await.map_err(|error| match error {
            SendError::Connect { why, cause } => {
                ChannelError::Connect { server: server.to_owned(), why, cause }.into()
            }
            error => error.into(),
        })
    }
}
