//! Keys from their borrowed forms.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A borrowed form of the key `K` of a [`KeyedRateLimiter`](crate::KeyedRateLimiter): how a call
/// names a key, and how the table makes one when it has to keep it.
///
/// Every key that is `Clone` is a form of itself. `str`, `[T]`, `Path`, `OsStr` and `CStr` are forms of
/// their owned type and of an `Arc` or `Box` of themselves; `str` is one of `Cow<'static, str>`, too.
/// Implement the trait for another borrowed form of a key of your own. It must hash and compare as
/// the key does ([`Borrow`](std::borrow::Borrow)).
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{InFlight, KeyedRateLimiter};
///
/// let by_name: KeyedRateLimiter<Arc<str>, _> = KeyedRateLimiter::new(InFlight::new(2));
/// let _grant = by_name.try_acquire("alice", 1)?; // no `Arc` is made if the key is there
/// assert_eq!(by_name.available("alice"), 1);
/// # Ok::<(), tollgate::Error>(())
/// ```
pub trait ToKey<K>: Hash + Eq {
    /// The key itself.
    fn to_key(&self) -> K;
}

// Not "whose `ToOwned::Owned` is the key": beside that the compiler allows no `Arc<str>` for `str`.
impl<K: Clone + Hash + Eq> ToKey<K> for K {
    fn to_key(&self) -> K {
        self.clone()
    }
}

/// A borrowed form, and the keys that can be named by it.
macro_rules! keys {
    ($($borrowed:ty: $($key:ty),+;)+) => {
        $($(
            impl ToKey<$key> for $borrowed {
                fn to_key(&self) -> $key {
                    self.into()
                }
            }
        )+)+
    };
}

keys! {
    str: String, Arc<str>, Box<str>;
    Path: PathBuf, Arc<Path>, Box<Path>;
    OsStr: OsString, Arc<OsStr>, Box<OsStr>;
    CStr: CString, Arc<CStr>, Box<CStr>;
}

/// Whatever can be made of a slice.
impl<T: Hash + Eq, K: for<'a> From<&'a [T]>> ToKey<K> for [T] {
    fn to_key(&self) -> K {
        self.into()
    }
}

impl ToKey<Cow<'static, str>> for str {
    fn to_key(&self) -> Cow<'static, str> {
        Cow::Owned(self.to_owned())
    }
}
