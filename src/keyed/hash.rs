//! The hash functions of keys.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

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
    type Hasher = FastHasher;

    #[inline]
    fn build_hasher(&self) -> FastHasher {
        FastHasher(self.0.build_hasher())
    }
}

/// The hasher of a [`FastHash`].
#[derive(Clone)]
pub struct FastHasher(DefaultHasher);

impl fmt::Debug for FastHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastHasher").finish_non_exhaustive()
    }
}

/// Hands each of these on, as some of them are faster than their bytes.
macro_rules! hand_on {
    ($($write:ident: $number:ty),+) => {
        $(
            #[inline]
            fn $write(&mut self, number: $number) {
                self.0.$write(number);
            }
        )+
    };
}

impl Hasher for FastHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    hand_on!(write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128, write_usize: usize);
}
