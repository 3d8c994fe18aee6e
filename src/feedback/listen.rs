//! What a call hears of its response where a layer hands it on: the head, and of gRPC what follows it.

use std::task::{Context, Waker};

use http::{HeaderMap, StatusCode};

use super::call::Call;
use super::grpc;
use crate::limiter::{Hearing, OwnedLimiter};

impl<L: OwnedLimiter> Call<L> {
    pub(super) fn hear_head(&mut self, status: StatusCode, headers: &HeaderMap) -> Hearing {
        // A middleware that has read the body has observed it.
        if self.is_over() {
            return None;
        }
        if grpc::is_open(status, headers) {
            self.keep_head(status, headers);
            return None;
        }
        let mut rest = Box::pin(self.observe(status, headers));
        // In process it is ready at once.
        let polled = rest.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if polled.is_ready() {
            return None;
        }
        Some(Box::pin(async move {
            rest.await;
        }))
    }

    /// More of the response is to come. If the call is dropped before, it hears the head alone.
    pub(crate) fn keep_head(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.head = Some(Box::new((status, headers.clone())));
    }

    /// A message says that the call was taken.
    pub(super) fn hear_frame(&mut self, trailers: Option<&HeaderMap>) {
        let Some(head) = self.head.take() else { return };
        let (status, mut headers) = *head;
        headers.extend(trailers.cloned().unwrap_or_default());
        self.observe_at_once(status, &headers);
    }
}
