//! What takes real time: how late the timers are, and governor's own futures.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};

use crate::crates::{Limit, each_in_real_time};
use crate::table::{Cells, Expected, Row};
use crate::waits::starved;

const MS: Duration = Duration::from_millis(1);

pub fn rows() -> Vec<Row> {
    vec![late_timers(), room_to_catch_up(), large(), order()]
}

/// Percent of a thousand a second that one task gets: the best of five runs, as other programs run beside it.
fn pace(burst: u32) -> Cells {
    const WAITS: u32 = 100;
    each_in_real_time(Limit { each: MS, burst }, false, async |limiter| {
        let mut best = 0.0_f64;
        for _ in 0..5 {
            let start = Instant::now();
            for _ in 0..WAITS {
                limiter.wait(1).await;
            }
            best = best.max((MS * WAITS).as_secs_f64() / start.elapsed().as_secs_f64());
        }
        (100.0 * best).into()
    })
}

fn late_timers() -> Row {
    Row {
        fault: "late timers that lower the rate",
        done: "1,000 a second, one at a time; one task waits 100 times: percent of the rate, the best of five runs",
        expected: Expected::AtLeast(90.0),
        cells: pace(1),
    }
}

fn room_to_catch_up() -> Row {
    Row {
        fault: "the same, with a burst",
        done: "10 at once",
        expected: Expected::AtLeast(95.0),
        cells: pace(10),
    }
}

fn large() -> Row {
    let limit = Limit { each: 10 * MS, burst: 50 };
    Row {
        fault: "a large request that starves",
        done: "as above, for 1 s",
        expected: Expected::AtMost(700.0),
        cells: each_in_real_time(limit, true, async |limiter| starved(limiter, 1_000 * MS).await),
    }
}

/// Paused time would not show it: there, timers of the same time end in the order in which they began.
fn order() -> Row {
    let limit = Limit { each: 10 * MS, burst: 1 };
    let cells = each_in_real_time(limit, false, async |limiter| {
        let callers = (0..40).map(|index| {
            let limiter = &limiter;
            async move {
                sleep(4 * MS * index).await;
                limiter.wait(1).await;
                Instant::now()
            }
        });
        let ends = join_all(callers).await;
        // Those of one refill go on at about the same time.
        let is_overtaken = |(index, end): &(usize, &Instant)| {
            ends[*index..].iter().any(|later| *later + MS < **end)
        };
        (ends.iter().enumerate().filter(is_overtaken).count() as u32).into()
    });
    Row {
        fault: "later callers that go first",
        done: "100 a second; 40 callers come 4 ms apart and wait: how many are overtaken by a later one",
        expected: Expected::Is(0.0),
        cells,
    }
}
