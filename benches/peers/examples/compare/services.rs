//! What layers do to the calls of services.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use http::Response;
use throttle_net::tower::AdaptiveLayer;
use throttle_net::{AdaptiveLimiter, Aimd};
use tokio::time::timeout;
use tollgate::tower::RateLimitLayer;
use tollgate::{Clock, InFlight, Policy, Rate, RateLimiter, TokenBucket};
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::crates::{Check, Limit, Wait, paused};
use crate::table::{Cell, Cells, Expected, Row};

pub fn rows() -> Vec<Row> {
    vec![layer(), body()]
}

/// A server that answers at once.
type Server = tower::util::ServiceFn<fn(()) -> Ready<Result<Response<String>, Infallible>>>;

fn server() -> Server {
    service_fn(|()| ready(Ok(Response::new("some".to_owned()))))
}

fn ours(policy: impl Policy<Cost = u32>) -> RateLimitLayer {
    RateLimitLayer::new(RateLimiter::with_clock(policy, Clock::tokio()))
}

fn here_and_there(tollgate: Cell, tower: Cell, throttle_net: Cell) -> Cells {
    [tollgate, Cell::absent(), Cell::absent(), Cell::absent(), tower, throttle_net]
}

fn layer() -> Row {
    /// Of ten workers with ten calls each.
    fn pass<S: Service<(), Error: Debug>>(layer: &impl Layer<Server, Service = S>) -> Cell {
        let workers = (0..10).map(|_| Mutex::new(layer.layer(server())));
        let passed = |worker: Mutex<S>| (0..10).filter(|_| worker.check(1)).count() as u32;
        workers.map(passed).sum::<u32>().into()
    }
    let second = Duration::from_secs(1);
    let limit = Limit { each: second / 10, burst: 10 };
    let ours = paused(async { pass(&ours(TokenBucket::new(Rate::new(10, second), 10))) });
    let [theirs, buffered] = [
        paused(async { pass(&tower::limit::RateLimitLayer::new(10, second)) }),
        paused(async {
            let buffer: Arc<dyn Wait> = Arc::new(Buffer::new(limit.tower(), 1024));
            let calls = (0..100).map(|_| timeout(second / 2, buffer.wait(1)));
            let passed = join_all(calls).await.into_iter().filter(|call| call.is_ok()).count();
            Cell::from(passed as u32)
        }),
    ];
    let throttle_net =
        paused(async { pass(&throttle_net::tower::ThrottleLayer::new(limit.throttle_net())) });
    let theirs = theirs.note(format!("with clones of one `Buffer` {}", buffered.figure));
    Row {
        fault: "a limit for each service of a layer",
        done: "a layer of 10 a second makes the services of ten workers, with ten calls each at once: how many pass",
        expected: Expected::Is(10.0),
        cells: here_and_there(ours, theirs, throttle_net),
    }
}

fn body() -> Row {
    async fn in_flight<S>(mut service: S) -> Cell
    where
        S: Service<(), Error: Debug> + Clone,
    {
        let service_of_another = Mutex::new(service.clone());
        let response = service.ready().await.expect("ready").call(()).await.expect("an answer");
        let most = 1 + u32::from(service_of_another.check(1));
        drop(response);
        assert!(service_of_another.check(1), "the first one has ended");
        most.into()
    }
    Row {
        fault: "a body that is still sent, and not counted",
        done: "one call in flight; a response has come whose body is not read yet: calls in flight with the next one",
        expected: Expected::Is(1.0),
        cells: here_and_there(
            paused(async { in_flight(ours(InFlight::new(1)).layer(server())).await }),
            paused(async { in_flight(ConcurrencyLimitLayer::new(1).layer(server())).await }),
            paused(async {
                let one = AdaptiveLimiter::builder().ceiling(1).build(Aimd::default());
                in_flight(AdaptiveLayer::new(Arc::new(one)).layer(server())).await
            }),
        ),
    }
}
