//! The hash function of keys.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, DefaultHasher};

/// The default hash function of a [`KeyedRateLimiter`](crate::KeyedRateLimiter): a fast one, with a random seed
/// of each limiter.
///
/// It is [foldhash](https://docs.rs/foldhash)'s fast one. Keys that an attacker has chosen before, without the
/// answers of this limiter, collide no more often than others, because the seed is not known. It is not a
/// cryptographic function: it promises nothing against an attacker who measures how long many calls take and learns
/// the seed from that. Where keys come from such attackers, take [`std::hash::RandomState`]
/// ([`hasher`](crate::KeyedRateLimiterBuilder::hasher)), which is `SipHash` and made for it.
///
/// What collisions cost is bounded in any case: keys that collide are found more slowly, no decision changes, and
/// [`max_keys`](crate::KeyedRateLimiterBuilder::max_keys) bounds their number.
///
/// ```
/// use std::hash::BuildHasher;
/// use tollgate::FastHash;
///
/// let (one, other) = (FastHash::new(), FastHash::new());
/// assert_eq!(one.hash_one("alice"), one.clone().hash_one("alice"));
/// assert_ne!(one.hash_one("alice"), other.hash_one("alice"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct FastHash(DefaultHashBuilder);

impl FastHash {
    /// With a new random seed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl BuildHasher for FastHash {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> DefaultHasher {
        self.0.build_hasher()
    }
}
