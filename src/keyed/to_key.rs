//! Conversion of borrowed forms to keys.

use std::borrow::{Borrow, Cow};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A borrowed form of the key `K` of a [`KeyedRateLimiter`](crate::KeyedRateLimiter). A call names a key in
/// this form, and the table converts it to a `K` when it has to store the key.
///
/// Every key that is `Clone` is a form of itself. `str`, `[T]`, `Path`, `OsStr` and `CStr` are forms of
/// their owned type and of an `Arc` or `Box` of themselves; `str` is also a form of `Cow<'static, str>`.
/// Implement the trait for other borrowed forms of your own key types. A form must hash as the key does.
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
///
/// A key of several fields has no borrowed form in the standard library. A trait object can be one, so that a call at a
/// known key allocates nothing:
///
/// ```
/// use std::hash::{Hash, Hasher};
/// use tollgate::{InFlight, KeyedRateLimiter, ToKey};
///
/// #[derive(PartialEq, Eq, Hash)]
/// struct Key {
///     user: String,
///     endpoint: u32,
/// }
///
/// trait Fields {
///     fn fields(&self) -> (&str, u32);
/// }
/// impl Fields for Key {
///     fn fields(&self) -> (&str, u32) {
///         (&self.user, self.endpoint)
///     }
/// }
/// impl Fields for (&str, u32) {
///     fn fields(&self) -> (&str, u32) {
///         *self
///     }
/// }
///
/// impl Hash for dyn Fields + '_ {
///     fn hash<H: Hasher>(&self, state: &mut H) {
///         self.fields().hash(state); // as the derived one of `Key`: field by field
///     }
/// }
/// impl PartialEq for dyn Fields + '_ {
///     fn eq(&self, other: &Self) -> bool {
///         self.fields() == other.fields()
///     }
/// }
/// impl Eq for dyn Fields + '_ {}
/// impl ToKey<Key> for dyn Fields + '_ {
///     fn to_key(&self) -> Key {
///         let (user, endpoint) = self.fields();
///         Key { user: user.to_owned(), endpoint }
///     }
///     fn is_key(&self, key: &Key) -> bool {
///         self.fields() == key.fields()
///     }
/// }
///
/// let limiter: KeyedRateLimiter<Key, _> = KeyedRateLimiter::new(InFlight::new(2));
/// let _grant = limiter.try_acquire(&("alice", 1_u32) as &dyn Fields, 1)?;
/// assert_eq!(limiter.available(&("alice", 1_u32) as &dyn Fields), 1);
/// assert_eq!(limiter.available(&("alice", 2_u32) as &dyn Fields), 2);
/// # Ok::<(), tollgate::Error>(())
/// ```
pub trait ToKey<K>: Hash + Eq {
    /// The key itself.
    fn to_key(&self) -> K;

    /// Whether this is a form of `key`.
    fn is_key(&self, key: &K) -> bool;
}

// Not for all `Q: ToOwned<Owned = K>`: the compiler would then reject `Arc<str>` for `str`.
impl<K: Clone + Hash + Eq> ToKey<K> for K {
    fn to_key(&self) -> K {
        self.clone()
    }

    #[inline]
    fn is_key(&self, key: &K) -> bool {
        self == key
    }
}

/// Each borrowed form with the key types that it can name.
macro_rules! keys {
    ($($borrowed:ty: $($key:ty),+;)+) => {
        $($(
            impl ToKey<$key> for $borrowed {
                fn to_key(&self) -> $key {
                    self.into()
                }

                #[inline]
                fn is_key(&self, key: &$key) -> bool {
                    let key: &Self = key.borrow();
                    self == key
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

/// All key types that can be made from a slice.
impl<T: Hash + Eq, K: Borrow<[T]> + for<'a> From<&'a [T]>> ToKey<K> for [T] {
    fn to_key(&self) -> K {
        self.into()
    }

    #[inline]
    fn is_key(&self, key: &K) -> bool {
        self == key.borrow()
    }
}

impl ToKey<Cow<'static, str>> for str {
    fn to_key(&self) -> Cow<'static, str> {
        Cow::Owned(self.to_owned())
    }

    #[inline]
    fn is_key(&self, key: &Cow<'static, str>) -> bool {
        self == key
    }
}
