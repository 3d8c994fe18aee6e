//! A real server on loopback, and a client as a user writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::feedback::Feedback;
use tollgate::{Rate, RateLimiter, SmoothBursty};

use super::server::{Reset, Server, Style, app};
use crate::support::serve;

/// 40 calls in any half second; 16 clients that would like 1,000 a second.
#[tokio::test]
async fn clients_of_a_server_on_loopback_learn_its_quota() {
    let span = Duration::from_millis(2500);
    let server = Server::new(Style::Discord, Reset::All, 40, Duration::from_millis(500));
    let url = serve(app(Arc::new(server))).await;
    let policy = SmoothBursty::new(Rate::per_second(1000.0));
    let api = Feedback::new(RateLimiter::new(policy));
    let (taken, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let client = reqwest::Client::new();
    let start = Instant::now();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (api, client, url) = (api.clone(), client.clone(), url.clone());
            let (taken, late) = (Arc::clone(&taken), Arc::clone(&late));
            tokio::spawn(async move {
                while start.elapsed() < span {
                    let mut call = api.acquire(1).await.expect("granted");
                    // A retry after the first refusals, whose `Retry-After` is a second.
                    let is_late = start.elapsed() > Duration::from_millis(800);
                    let response = client.get(&url).send().await.expect("a response");
                    let answer = call.observe(response.status(), response.headers()).await;
                    if answer.is_accepted() {
                        taken.fetch_add(1, Ordering::Relaxed);
                    } else if is_late {
                        late.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
    let (taken, late) = (taken.load(Ordering::Relaxed), late.load(Ordering::Relaxed));
    println!("{taken} taken, {late} refused late, {:?}", api.stats());
    // 200 and a window fit into the time.
    assert!((80..=280).contains(&taken), "{taken} taken");
    // Delays of a busy machine can push two windows together.
    assert!(late <= taken / 20, "{late} of {taken} refused");
}
