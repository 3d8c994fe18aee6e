//! Learning limits from servers: what they say, and what they only show.
//!
//! A limit set by hand is a guess. Most APIs say in each response what remains of the quota and when it resets,
//! and after a 429 or 503 how long to wait. Others only refuse. A [`Feedback`] around any limiter of this crate reads
//! what a server says, in [all usual forms](#dialects), learns a rate from what it refuses, and holds calls back
//! accordingly. [`Feedback::starting_at`] needs no limit of your own. It does no I/O:
//!
//! ```no_run
//! use std::error::Error;
//! use tollgate::feedback::Feedback;
//! use tollgate::{Rate, RateLimiter, TokenBucket};
//!
//! async fn get(api: &Feedback<RateLimiter<TokenBucket>>, url: &str) -> Result<reqwest::Response, Box<dyn Error>> {
//!     loop {
//!         let mut call = api.acquire(1).await?;
//!         let response = reqwest::get(url).await?;
//!         if call.observe(response.status(), response.headers()).await.is_accepted() {
//!             return Ok(response);
//!         }
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn Error>> {
//! let limiter = RateLimiter::new(TokenBucket::new(Rate::per_second(100.0), 100)); // what you would like
//! let api = Feedback::new(limiter); // what you get
//! get(&api, "https://api.example.com/").await?;
//! # Ok(()) }
//! ```
//!
//! Guide: [clients and servers](crate::guide::http).
//!
//! # Three limits
//!
//! A call goes when all of these allow it. Each answer changes the first two, and never the third.
//!
//! | limit | set by | applies |
//! |---|---|---|
//! | pauses and windows | the server, by [what it says](#what-it-says) | until the time that it named |
//! | a rate | the learner, by [what the server shows](#what-it-shows) | from the first refusal |
//! | the limiter inside | you | always |
//!
//! [`Feedback::server_state`] shows the first two, [`resume`](Feedback::resume) ends them, and a program whose calls are not
//! HTTP reports them by [`accepted`](Call::accepted), [`refused`](Call::refused) and [`failed`](Call::failed).
//!
//! # What it shows
//!
//! - **A 429 without a time** says that the rate was too high. The rate falls, once for all calls that were sent at it:
//!   by a quarter after few good calls, by 6 % after many. Calls that were acquired and not sent wait for the new
//!   rate. Without [`start`](FeedbackBuilder::start) the first refusal only makes a rate: twice what the server accepted a
//!   second in the last one or two minutes, because a higher one was never tested. So a client that goes on as before is
//!   slowed only if more refusals follow. If the first one comes within a second, the rate doubles each second until the
//!   next one.
//! - **Good calls** that waited for the rate raise it: by 2.5 % a second at first, and by up to 20 % the longer none is
//!   refused; by 0.8 % while the pace is near what it was taken at before a refusal, and by 2 % up to 1.7 times that. A rate
//!   that is not used up does not move, so an idle program does not drift.
//! - **A client with more waiting calls sends faster**: its pace is its rate times the fourth root of the number of
//!   waiting calls. Numbers above 25 count as 25. So programs that share a quota without knowing of each other end
//!   at about the same time. [`Feedback::rate`] returns the pace.
//! - **Six refusals in a row** are a window that is used up: single calls go after about 1, 1.6, 2.6, 4.1 .. 16 seconds, and
//!   the rate becomes what the last window took, for which three are enough after many good calls. After two, calls go one
//!   at a time.
//! - **Failures** (a 5xx without a time, a connection that broke) say nothing of the rate while fewer than three of
//!   twenty calls fail. Beside good calls they may be a limit: nginx refuses with a bare 503. So calls go more slowly for
//!   about twenty calls. If fewer of them fail then, failures are refusals from now on, until a lower pace no longer heals
//!   them. If not, as where one route is broken, all of the rate is back, and the next trial comes four times later.
//!   While more than half of the last twenty calls fail at any pace, the pace is halved or less.
//! - **Nine failures in a row** without a good call are an outage: single calls after 1, 2, 4 .. 16 seconds, and all of
//!   the rate thirteen good calls after it.
//! - **Random parts** of the pauses and between single calls keep many clients out of step.
//!
//! ![the rate that a client learned, beside the quota that it did not know][learned_rate]
//!
//! A client that was never refused pays nothing for this: there is no rate, until
//! [`start`](FeedbackBuilder::start) or a refusal makes one. Each process learns for itself, also over Redis.
//!
//! # How many at once
//!
//! With [`learn_in_flight`](FeedbackBuilder::learn_in_flight) the number of calls in flight is learned too, for a server with a
//! pool of workers: from how long calls take, and from refusals that name no time, which then lower no rate.
//!
//! # What it says
//!
//! - **Before its first answer** at most four calls are in flight, as the quota may be small. If it takes longer than a
//!   second, the others follow.
//! - **After a refusal** (429, 503, and what the dialect says) the limiter is paused for all its callers, as long
//!   as the server asks, but [at most an hour](FeedbackBuilder::max_wait). The [time that it
//!   names](#how-long-to-wait) takes precedence over the reset of an exhausted window, as RFC 9110 and the IETF's
//!   draft have it. Then calls go at the learned rate, and soon faster if many wait. If one is refused again, a named time was too short:
//!   it doubles, up to the reset; or, if the server says nothing of windows, the rate falls. A time that was cut to whole
//!   seconds, and so was too short twice, is taken for a second more from then on.
//! - **While the server states what remains**, no more calls are under way than that. Until its answer
//!   arrives, a call is taken for one that the server has not counted yet. Requests and tokens are
//!   [counted](#what-is-counted) apart.
//! - **Token buckets** (the dialects of `OpenAI` and Anthropic, and servers whose refusals name the time of the
//!   next permit and a later reset) refill steadily, so calls go on at the rate that remaining and reset give and
//!   need not wait for the reset.
//! - **A reset in whole seconds** was rounded up. No window counts a call for longer than its longest reset. So when
//!   nothing remains and all that was used was ours, one call goes as soon as our oldest counted call is so old, but no
//!   earlier than rounding allows: a limit of your own that is the server's loses nothing. If that call is refused, no other
//!   goes so early.
//! - A server whose permits are *seen* to return before the reset (more remains than before, or the reset moves) has a
//!   sliding window or a bucket. A sliding window gives each of your calls back one window after it was counted. How long
//!   it is, the resets and your own calls show. If more remains than that, it is a bucket, and as much goes out as returns.
//! - **A reset that is a date** in whole seconds is too coarse for short windows. A window that begins with its first call
//!   lasts for whole seconds, so one call tries a second earlier each time, until that is refused once.
//! - **At the reset** a window reopens by itself: with the whole quota if a window was seen to begin so, otherwise
//!   with one call, whose answer says more. If the limiter was paused, a bucket begins empty, as [after every
//!   pause](crate::guide::methods).
//! - **Late answers** undo nothing: each call knows when it was sent.
//! - **If a server rejects calls that it had allowed**, its headers are distrusted, as other clients take from the
//!   quota: a window begins with one call, a token bucket is taken to refill at 1/24 of its rate until an answer
//!   says more, and the rate becomes what the server took lately. A call that came a second too early, as times are
//!   rounded, is no such call.
//! - **Malformed fields** are ignored and [counted](ServerState::malformed). The server's clock is read from
//!   `Date`: it may be wrong by any amount. As a `Date` is cut to its second and may be old, the latest one by our clock
//!   counts, of many answers. `Retry-After` in seconds beside a reset that is a date is nearer, and counts.
//!
//! Two processes with a `Feedback` each do not know of each other's calls under way, so some calls near the end of
//! the quota are refused.
//!
//! # Dialects
//!
//! | dialect | fields | reset | besides |
//! |---|---|---|---|
//! | any | [`Retry-After`](#how-long-to-wait), also with a name around it: `Retry-After-short`, `X-RateLimit-Retry-After` | | 429, 503 |
//! | [GitHub](Dialect::GITHUB) | `x-ratelimit-limit`, `-remaining`, `-reset`, `-resource` | any: epoch seconds | 403 with `Retry-After` or nothing left; a minute if no time is given |
//! | `OpenAI`, and APIs that follow it | `x-ratelimit-limit-requests`, `-tokens`, .. | `6m0s`, `20ms` | permits come back steadily |
//! | [Anthropic](Dialect::ANTHROPIC) | `anthropic-ratelimit-requests-limit`, `-tokens-`, `-input-tokens-`, `-output-tokens-`, .. | RFC 3339 | 529; permits come back steadily |
//! | Discord | `X-RateLimit-Limit`, `-Remaining`, `-Reset-After`, `-Bucket` | seconds with decimals | each channel, guild and webhook has the bucket for itself |
//! | X, Yii, `AspNetCoreRateLimit`, hapi-rate-limitor, `micro-ratelimit` | `x-rate-limit-limit`, `-remaining`, `-reset` | any: epoch seconds, seconds, ISO 8601 | |
//! | X, for a day | `x-app-limit-24hour-limit`, `-remaining`, `-reset`, `x-user-limit-24hour-*` | epoch seconds | |
//! | Shopify | `X-Shopify-Shop-Api-Call-Limit`: `32/40` | none: one call asks again after a second | |
//! | IETF | `RateLimit`: `"default";r=50;t=30`, `RateLimit-Policy`: `"default";q=100;w=60;pk=:MTI=:` | seconds | also `a` for `r` and `w` for `t`; the partition `pk` is the bucket; [other names](Field::Structured) |
//! | IETF, up to draft 6, GitLab, Docker Hub | `RateLimit-Limit`, `-Remaining`, `-Reset`, `-Name` | any: seconds | |
//! | gRPC | `grpc-status`, `grpc-retry-pushback-ms` | | status 8 as 429, 14 as 503; in the header, where a refusal without a message has them |
//! | Google, in JSON | `"retryDelay": "28.1s"` of a `google.rpc.RetryInfo` in the first 64 KiB of a refusal's body | | a quota for a day: a minute, and twice as long each time |
//! | others, such as Reddit, koa, Flask-Limiter | `X-RateLimit-Limit`, `-Remaining`, `-Reset`; `Rate-Limit-Total`, .. | any | |
//! | named quotas, of all that have such fields | `X-RateLimit-Remaining-short` (`NestJS`), `X-RateLimit-UserRemaining` (hapi), `X-RateLimit-Requests-Remaining` (Linear, `RapidAPI`) | any | |
//!
//! Of several quotas the tightest counts: that of which less remains, or which lasts longer. Lists
//! (`X-RateLimit-Remaining: 0, 950`), parameters (`76;w=21600`), decimals and `-1` for nothing are read in all fields but
//! the IETF's structured ones. A limit of zero on an answer that was accepted is no quota.
//!
//! A time is read by the [form and size](Field) of its value: `x-ratelimit-reset: 40` is in 40 seconds, and
//! `x-ratelimit-reset: 1795435240` is a date.
//!
//! GitHub's secondary limit may be a 403 with neither `Retry-After` nor zero remaining: by its fields it is accepted, so it
//! needs a `judge`.
//!
//! Servers that say nothing, or refuse by a 403, a 503 or in the body of a 200: [a line for
//! each](crate::guide::http#servers-that-refuse-in-their-own-way).
//! If no dialect fits, set a [`judge`](FeedbackBuilder::judge). It sees each response, with the body if the client has
//! it, and decides whether it was a refusal and until when.
//!
//! # Several servers, and several quotas of one
//!
//! A `Feedback` is for calls to one server with one quota. [`Servers`] are for the rest: the limit is the user's, and
//! what is learned belongs to the server that said it and to the bucket that it named. A 429 of one host delays no
//! other, and with GitHub's `search` used up its `core` goes on. The middleware for reqwest and ureq and
//! [`RateLimitLayer::learn`](crate::tower::RateLimitLayer::learn) do so by themselves; other clients use [`Call::observe`].
//!
//! # What is counted
//!
//! A call is one request. `X-RateLimit-Remaining` and most other fields count requests, whatever a call costs the
//! limiter: bytes, tokens, or places in flight. The numbers of a tuple are taken for requests and tokens;
//! [`units`](FeedbackBuilder::units) says otherwise. Of the IETF's fields the quota unit (`qu`, of version 11 of
//! the draft) says what is counted: `requests` and `tokens` are read, and `content-bytes` and
//! `concurrent-requests` are not taken for requests.
//!
//! To settle the cost of a call that was observed: [settling an LLM
//! call](crate::guide::http#settling-an-llm-call).
//!
//! # How long to wait
//!
//! A refusal may name a time: `retry-after-ms`, `x-ms-retry-after-ms`, or `Retry-After` as seconds or one of
//! HTTP's dates; also as `120s`, RFC 3339 or epoch seconds, which some servers send. If a field was sent several
//! times, the longest time counts.
//!
//! - **429** is a refusal with or without a time. **503 and any other 5xx** (a gateway's 502, 504) hold calls back as
//!   a refusal does if they name a time, and are [failures](#what-it-shows) if they do not.
//! - With **2xx** and **3xx** the time says when to poll or to follow the redirect, and with **other 4xx** when
//!   this one request makes sense again: [`Answer::wait`] has it, and no other call waits for it. A dialect may
//!   add statuses, such as GitHub's 403.
//!
//! The headers of a 429 must reach `observe`. Some clients hide them: ureq 3 turns it into an error without
//! headers unless [`http_status_as_error(false)`](https://docs.rs/ureq/3/ureq/config/struct.ConfigBuilder.html#method.http_status_as_error)
//! is set.
//!
//! A [`Dialect`] of your own is a few lines. To read headers without a limiter: [`Dialects::read`].
//!
#![doc = include_str!("../docs/pictures/learner/url.md")]

mod answer;
mod builder;
mod call;
mod dialect;
mod gate;
mod grpc;
mod headers;
mod ietf;
mod learner;
mod observer;
mod place;
mod places;
mod quota;
mod routes;
mod server_state;
mod servers;
mod state;
mod text;
mod window;

pub use answer::{Answer, Meter, Unit, Verdict};
pub use builder::FeedbackBuilder;
pub use call::Call;
pub use dialect::{Dialect, Dialects};
pub use headers::Headers;
pub use observer::Feedback;
pub use quota::Field;
pub use server_state::ServerState;
#[cfg(feature = "reqwest")]
pub(crate) use servers::server_name;
pub use servers::{Learned, Servers};
pub use text::When;
