//! The keys of the table of all names.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::keyed::ToKey;
use crate::sync::Mutex;

/// A name in the table of [`RateLimiters`](crate::RateLimiters), and its tier, if it has one.
///
/// It is equal to its text, whatever its tier, and calls of the table take the text: `limiters.keyed().available("search")`.
///
/// ```
/// use tollgate::{Limits, ManualClock, Name, Per, RateLimiters};
///
/// let limits = Limits::new(Per::Name).tier("pro", "1000/min burst 50")?;
/// let limiters = RateLimiters::with_clock(limits, ManualClock::new());
/// let customer = limiters.at_tier("customer-7", "pro").expect("a tier of this name");
/// let name: &Name = customer.key();
/// assert_eq!((name.as_str(), name.tier().as_deref()), ("customer-7", Some("pro")));
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
pub struct Name {
    text: Box<str>,
    /// It changes while the name is in the table.
    tier: Mutex<Option<Arc<str>>>,
}

impl Name {
    pub(super) fn at_tier(text: &str, tier: Arc<str>) -> Self {
        Self { text: text.into(), tier: Mutex::new(Some(tier)) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The tier: of a name in the table, the last that it got.
    #[must_use]
    pub fn tier(&self) -> Option<Arc<str>> {
        self.tier.lock().clone()
    }

    /// Returns whether it was another.
    pub(super) fn set_tier(&self, tier: &Arc<str>) -> bool {
        let mut of_name = self.tier.lock();
        let is_other = of_name.as_ref() != Some(tier);
        *of_name = Some(Arc::clone(tier));
        is_other
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self { text: text.into(), tier: Mutex::new(None) }
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self { text: text.into(), tier: Mutex::new(None) }
    }
}

impl Clone for Name {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), tier: Mutex::new(self.tier()) }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == text
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

/// As its text.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl ToKey<Name> for str {
    fn to_key(&self) -> Name {
        self.into()
    }

    fn is_key(&self, key: &Name) -> bool {
        key == self
    }
}

impl ToKey<Name> for String {
    fn to_key(&self) -> Name {
        self.as_str().into()
    }

    fn is_key(&self, key: &Name) -> bool {
        key == self.as_str()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)?;
        self.tier().map_or(Ok(()), |tier| write!(f, " ({tier})"))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_text_whatever_its_tier() {
        let (name, other, text) = (Name::from("search"), Name::from("mail"), "search".to_owned());
        let of_tier = Name::at_tier("search", "pro".into());
        assert!(name == of_tier && name == *"search" && name == "search");
        assert!(name != other && name != *"mail" && name != "mail");
        assert!(ToKey::<Name>::is_key("search", &of_tier) && text.is_key(&of_tier));
        assert!(!ToKey::<Name>::is_key("mail", &of_tier) && !"mail".to_owned().is_key(&of_tier));
        assert_eq!(Borrow::<str>::borrow(&of_tier), "search");
        assert_eq!(format!("{name:?} {of_tier:?}"), "\"search\" \"search\" (pro)");
    }
}
