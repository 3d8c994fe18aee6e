//! What must hold of any input: of a text or a file with limits, of headers, of Redis's replies, and of any numbers.
//!
//! Each module is also a target of cargo-fuzz: see `tests/fuzz`. All inputs are text, so that a corpus can be read. An
//! input that failed joins it, under a name that says what it was.

pub(crate) mod files;
mod forwarded;
mod headers;
mod policies;
mod replies;
pub(crate) mod text;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::Path;

    /// Runs a target over its corpus, and over what is left of each input if it is cut off, at some twenty places.
    #[track_caller]
    fn holds_of_corpus(target: &str, judge: fn(&[u8])) {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/outbound/any_input/corpus");
        let inputs = fs::read_dir(Path::new(corpus).join(target)).expect("a corpus");
        let inputs: Vec<_> = inputs.map(|input| input.expect("an input").path()).collect();
        assert!(inputs.len() > 4, "{target} has {} inputs", inputs.len());
        for input in inputs {
            let bytes = fs::read(&input).expect("an input");
            for end in (0..=bytes.len()).rev().step_by(1 + bytes.len() / 20) {
                let outcome = catch_unwind(|| judge(&bytes[..end]));
                assert!(outcome.is_ok(), "see above: {end} bytes of {}", input.display());
            }
        }
    }

    #[test]
    fn files() {
        holds_of_corpus("files", super::files::judge);
    }

    #[test]
    fn forwarded() {
        holds_of_corpus("forwarded", super::forwarded::judge);
    }

    #[test]
    fn headers() {
        holds_of_corpus("headers", super::headers::judge);
    }

    #[test]
    fn policies() {
        holds_of_corpus("policies", super::policies::judge);
    }

    #[test]
    fn replies() {
        holds_of_corpus("replies", super::replies::judge);
    }

    #[test]
    fn text() {
        holds_of_corpus("text", super::text::judge);
    }
}
