//! What a call hears of its response where a layer hands it on: the head, and of gRPC what follows it.

use std::pin::pin;
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

    /// The rest of the response does not come. The head of gRPC says nothing by itself.
    pub(super) fn hear_no_more(&mut self) {
        self.head.take_if(|head| grpc::is_open(head.0, &head.1));
        self.hear_frame(None);
    }

    /// A message says that the call was taken.
    pub(super) fn hear_frame(&mut self, trailers: Option<&HeaderMap>) {
        let Some(head) = self.head.take() else { return };
        let (status, mut headers) = *head;
        headers.extend(trailers.cloned().unwrap_or_default());
        let rest = pin!(self.observe(status, &headers));
        // A pause is sent to a shared limiter with the first poll, and a reader that has all may not poll again.
        let _ = rest.poll(&mut Context::from_waker(Waker::noop()));
    }
}
