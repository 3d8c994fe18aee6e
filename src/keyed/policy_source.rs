//! Where the policy of a key comes from.

use std::sync::Arc;

/// The source of a key's policy.
pub(super) enum PolicySource<K, P> {
    One(P),
    /// A function of the key.
    Each(Arc<dyn Fn(&K) -> P + Send + Sync>),
}

impl<K, P> PolicySource<K, P> {
    /// The key's own policy, to be stored with it; `None` if all keys share one policy.
    pub(super) fn own(&self, key: &K) -> Option<Box<P>> {
        match self {
            Self::One(_) => None,
            Self::Each(policy_of) => Some(Box::new(policy_of(key))),
        }
    }

    #[inline]
    pub(super) fn policy<'a>(&'a self, own: Option<&'a P>) -> &'a P {
        match (own, self) {
            (Some(policy), _) | (None, Self::One(policy)) => policy,
            (None, Self::Each(_)) => unreachable!("each key has its own"),
        }
    }
}

impl<K, P: Clone> Clone for PolicySource<K, P> {
    fn clone(&self) -> Self {
        match self {
            Self::One(policy) => Self::One(policy.clone()),
            Self::Each(policy_of) => Self::Each(Arc::clone(policy_of)),
        }
    }
}
