//! A limiter under test, and what its callers know of it.

use std::time::Duration;

use tollgate::feedback::Feedback;
use tollgate::{
    AnyRateLimiter, Clock, Error, FixedWindow, Gcra, InFlight, KeyedRateLimiter, Limiter, Policy,
    Rate, RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket, Unlimited,
};

use crate::law::{Charged, Law};
use crate::subject::Subject;
use crate::tally::Tally;
use crate::task::now;

/// The most permits of a call that can be granted.
pub(crate) const MOST: u32 = 6;

/// The places of a rule with places, and the permits that a bucket stores.
pub(crate) const PLACES: u32 = 8;

/// The time of one permit.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);

const WINDOW: Duration = Duration::from_millis(100);
const STORE: Duration = Duration::from_millis(50);

/// By how much a change lowers a limit, at most.
const CHANGES: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Bucket,
    /// Never full, so that no permit is lost, and all can be counted.
    Hoard,
    Bursty,
    Gcra,
    WarmingUp,
    Log,
    Counter,
    Window,
    Places,
    /// A bucket and places.
    Together,
}

impl Rule {
    pub(crate) const ALL: [Self; 10] = [
        Self::Bucket,
        Self::Hoard,
        Self::Bursty,
        Self::Gcra,
        Self::WarmingUp,
        Self::Log,
        Self::Counter,
        Self::Window,
        Self::Places,
        Self::Together,
    ];

    /// Whether a request is paid for by the next one.
    pub(crate) fn is_smooth(self) -> bool {
        matches!(self, Self::Bursty | Self::WarmingUp)
    }

    pub(crate) fn holds_places(self) -> bool {
        matches!(self, Self::Places | Self::Together)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Any,
    /// One key of a few; the others come and go.
    Key,
    Feedback,
    /// Without a rule.
    Adaptive,
    And,
    /// `And` in a `Feedback`, without its types.
    Nested,
}

impl Form {
    pub(crate) const ALL: [Self; 7] = [
        Self::Plain,
        Self::Any,
        Self::Key,
        Self::Feedback,
        Self::Adaptive,
        Self::And,
        Self::Nested,
    ];

    /// Whether grants come in the order of arrival.
    pub(crate) fn is_in_order(self) -> bool {
        // A server's refusal sends callers back to its gate, and between two limiters they go on when they are polled.
        self.is_one_line()
    }

    pub(crate) fn hears(self) -> bool {
        matches!(self, Self::Feedback | Self::Adaptive | Self::Nested)
    }

    pub(crate) fn is_of_two(self) -> bool {
        matches!(self, Self::And | Self::Nested)
    }

    /// Whether each call counts once and a woken caller is a decided one.
    pub(crate) fn is_one_line(self) -> bool {
        matches!(self, Self::Plain | Self::Any | Self::Key)
    }
}

/// The parameters of a stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) rule: Rule,
    /// The second of two limiters.
    pub(crate) other: Rule,
    /// Whether callers go ahead of others, and take turns as tenants.
    pub(crate) has_ranks: bool,
    pub(crate) max_waiters: usize,
    /// The rate of a hoard: permits in nanoseconds.
    pub(crate) pace: (u32, u64),
}

impl Plan {
    /// Whether each permit can be counted.
    pub(crate) fn is_hoard(&self) -> bool {
        self.rules().all(|rule| rule == Rule::Hoard) && self.form != Form::Adaptive
    }

    /// The permits of a call, in a load of years.
    pub(crate) fn scale(&self) -> u32 {
        let (permits, per) = self.pace;
        let came = u128::from(permits) * 40_000_000_000_000 / u128::from(per);
        u32::try_from(came.max(1)).expect("far fewer than all")
    }

    /// How many permits of a hoard come in a time.
    pub(crate) fn came(&self, nanos: i64) -> i64 {
        let (permits, per) = self.pace;
        let came = i128::from(nanos) * i128::from(permits) / i128::from(per);
        i64::try_from(came).expect("a number of permits")
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = Rule> {
        let (first, second) = match self.form {
            Form::Adaptive => (None, None),
            Form::And | Form::Nested => (Some(self.rule), Some(self.other)),
            _ => (Some(self.rule), None),
        };
        first.into_iter().chain(second)
    }

    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.rules().any(|one| one == rule)
    }

    pub(crate) fn holds_places(&self) -> bool {
        self.rules().any(Rule::holds_places)
    }
}

/// A call at another key.
type Crowd = Box<dyn Fn(u8) -> Result<(), Error>>;

/// An arrival, and when it was granted or left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) arrival: u64,
    pub(crate) at: i64,
    pub(crate) granted: bool,
}

pub(crate) struct Stage {
    pub(crate) plan: Plan,
    pub(crate) subject: Box<dyn Subject>,
    change: Vec<Box<dyn Fn(u32)>>,
    /// A call at another key.
    crowd: Option<Crowd>,
    /// Of each rule.
    laws: Vec<Vec<Law>>,
    /// The grants of each rule.
    pub(crate) histories: [Vec<Charged>; 2],
    /// It was reset, and callers may give back what they took before.
    pub(crate) was_reset: bool,
    pub(crate) line: Vec<Ended>,
    pub(crate) tally: Tally,
    pub(crate) closed: bool,
    /// When pauses began and ended.
    pub(crate) pauses: Vec<(i64, i64)>,
    /// Places held by grants.
    pub(crate) places: u32,
    /// When it was made.
    pub(crate) born: i64,
    /// The permits that were taken and kept, as long as these are all that can be missing.
    pub(crate) net: Option<i64>,
}

/// A limiter of one rule, without its type.
struct Leaf {
    any: AnyRateLimiter<u32>,
    plain: Box<dyn Subject>,
    change: Box<dyn Fn(u32)>,
    crowd: Option<Crowd>,
    laws: Vec<Law>,
}

const KEY: u8 = 100;
const KEYS: usize = 6;

fn made<P: Policy<Cost = u32> + std::fmt::Debug>(
    plan: &Plan,
    clock: &Clock,
    policy: impl Fn(u32) -> P + 'static,
    laws: Vec<Law>,
) -> Leaf {
    if plan.form == Form::Key {
        let table = KeyedRateLimiter::builder(policy(0)).clock(clock.clone()).max_keys(KEYS);
        // Else a hoard would be full at first.
        let table = table.max_waiters(plan.max_waiters).absent_is_new(plan.is_hoard()).build();
        drop(table.at(&KEY).try_acquire(0).expect("a limit"));
        let (changed, key) = (table.clone(), table.at(&KEY).into_owned());
        return Leaf {
            any: AnyRateLimiter::new(key.clone()),
            plain: Box::new(key),
            change: Box::new(move |less| changed.set_policy(policy(less))),
            crowd: Some(Box::new(move |key| table.at(&key).try_acquire(1).map(drop))),
            laws,
        };
    }
    let limiter = RateLimiter::builder(policy(0)).clock(clock.clone());
    let limiter = limiter.max_waiters(plan.max_waiters).build();
    let changed = limiter.clone();
    Leaf {
        any: AnyRateLimiter::new(limiter.clone()),
        plain: Box::new(limiter),
        change: Box::new(move |less| changed.set_policy(policy(less))),
        crowd: None,
        laws,
    }
}

fn bucket(less: u32) -> TokenBucket {
    TokenBucket::new(Rate::every(INTERVAL * (1 + less)), PLACES - less)
}

fn hoard(plan: &Plan) -> TokenBucket {
    let (permits, per) = plan.pace;
    TokenBucket::new(Rate::new(u64::from(permits), Duration::from_nanos(per)), u32::MAX).initial(0)
}

fn leaf(rule: Rule, plan: &Plan, clock: &Clock) -> Leaf {
    let rate = |less: u32| Rate::every(INTERVAL * (1 + less));
    let strict = vec![Law::bucket(INTERVAL, PLACES)];
    match rule {
        Rule::Bucket => made(plan, clock, bucket, strict),
        Rule::Hoard => {
            let plan_of = *plan;
            made(plan, clock, move |_| hoard(&plan_of), Vec::new())
        }
        Rule::Bursty => {
            let bursty = move |less| SmoothBursty::new(rate(less)).max_burst(STORE);
            made(plan, clock, bursty, vec![Law::smooth(INTERVAL, STORE, MOST)])
        }
        Rule::Gcra => {
            let gcra = |less| Gcra::new(PLACES - 1 - less, 100 - less, Duration::from_secs(1));
            made(plan, clock, gcra, strict)
        }
        Rule::WarmingUp => {
            let warming_up = move |less| SmoothWarmingUp::new(rate(less), 2 * WINDOW);
            made(plan, clock, warming_up, vec![Law::smooth(INTERVAL, Duration::ZERO, MOST)])
        }
        Rule::Log => {
            let log = |less| SlidingWindowLog::new(10 - less, WINDOW);
            made(plan, clock, log, vec![Law::window(10, WINDOW)])
        }
        Rule::Counter => {
            // A part of the window may be cut off.
            let counter = |less| SlidingWindowCounter::new(10 - less, WINDOW, 5);
            made(plan, clock, counter, vec![Law::window(10, WINDOW * 4 / 5)])
        }
        Rule::Window => {
            // Two windows meet at an edge.
            let window = |less| FixedWindow::new(10 - less, WINDOW);
            made(plan, clock, window, vec![Law::bucket(WINDOW / 10, 20)])
        }
        Rule::Places => made(plan, clock, |less| InFlight::new(PLACES - less), Vec::new()),
        Rule::Together => {
            let both = |less| Same((bucket(less), InFlight::new(PLACES - less)));
            made(plan, clock, both, strict)
        }
    }
}

impl Stage {
    pub(crate) fn new(plan: Plan, clock: &Clock) -> Self {
        let leaf = |rule| leaf(rule, &plan, clock);
        let (mut change, mut crowd, mut laws) = (Vec::new(), None, Vec::new());
        let subject: Box<dyn Subject> = match plan.form {
            Form::Adaptive => {
                let limiter = RateLimiter::with_clock(Unlimited, clock.clone());
                let start = Rate::every(INTERVAL);
                Box::new(Feedback::builder(limiter).start(start).seed(1).build())
            }
            form => {
                let first = leaf(plan.rule);
                change.push(first.change);
                laws.push(first.laws);
                crowd = first.crowd;
                match form {
                    Form::Any => Box::new(first.any),
                    Form::Feedback => Box::new(Feedback::builder(first.any).seed(1).build()),
                    Form::And | Form::Nested => {
                        let second = leaf(plan.other);
                        change.push(second.change);
                        laws.push(second.laws);
                        let both = first.any.and(&second.any);
                        if form == Form::And {
                            Box::new(both)
                        } else {
                            let both = Feedback::builder(AnyRateLimiter::new(both)).seed(1);
                            Box::new(AnyRateLimiter::new(both.build()))
                        }
                    }
                    _ => first.plain,
                }
            }
        };
        Self {
            plan,
            subject,
            change,
            crowd,
            laws,
            histories: Default::default(),
            was_reset: false,
            line: Vec::new(),
            // Callers that the second limiter refuses have waited at the first.
            tally: Tally { waited_more: plan.form == Form::And, ..Tally::default() },
            closed: false,
            pauses: Vec::new(),
            places: 0,
            born: now(clock),
            net: plan.is_hoard().then_some(0),
        }
    }

    /// Another limit, or that at first for zero.
    pub(crate) fn change(&self, draw: u32) {
        self.change.iter().for_each(|change| change(draw % (CHANGES + 1)));
    }

    /// Checks the grants so far and forgets the older ones, where there are many.
    pub(crate) fn compact(&mut self, dated: bool) -> Result<(), String> {
        if self.line.len() + self.histories[0].len() > 400 {
            self.check_order(dated)?;
            self.check_laws()?;
            self.line.clear();
            self.pauses.drain(..self.pauses.len().saturating_sub(100));
            let old = self.histories[0].len().saturating_sub(100);
            self.histories.iter_mut().for_each(|history| drop(history.drain(..old)));
        }
        Ok(())
    }

    /// A call at another key, if there are keys.
    pub(crate) fn crowd(&self, key: u8) -> Option<Result<(), Error>> {
        self.crowd.as_ref().map(|crowd| crowd(key % 12))
    }

    /// Puts a grant into the histories, and returns where it stands there.
    pub(crate) fn charge(&mut self, charged: [Charged; 2]) -> usize {
        self.histories.iter_mut().zip(charged).for_each(|(history, one)| history.push(one));
        self.histories[0].len() - 1
    }

    /// Law 1.
    pub(crate) fn check_laws(&self) -> Result<(), String> {
        if self.was_reset {
            return Ok(());
        }
        for (laws, history) in self.laws.iter().zip(&self.histories) {
            let history: Vec<_> = history.iter().copied().filter(|one| one.n > 0).collect();
            for law in laws {
                let over = if history.is_empty() { 0 } else { law.slack_needed(&history) };
                // Due times are rounded up, which a store makes good.
                if over > 2 {
                    return Err(format!("law 1 needs {over} ns: {law:?}, {history:?}"));
                }
            }
        }
        Ok(())
    }

    /// Grants are in the order of arrival, and no caller was passed over before it left. `dated`: grants are dated back
    /// where an alarm was late, so only they are compared.
    pub(crate) fn check_order(&mut self, dated: bool) -> Result<(), String> {
        let form = self.plan.form;
        let is_in_order = form.is_in_order() && (form.is_one_line() || !dated);
        if self.plan.has_ranks || !is_in_order {
            return Ok(());
        }
        self.line.sort_unstable_by_key(|ended| ended.arrival);
        let mut before: Option<Ended> = None;
        for &ended in &self.line {
            if let Some(before) = before
                && ended.granted
                && ended.at < before.at
            {
                return Err(format!("{ended:?} overtakes {before:?}"));
            }
            if (ended.granted || !dated) && before.is_none_or(|before| before.at < ended.at) {
                before = Some(ended);
            }
        }
        Ok(())
    }
}
