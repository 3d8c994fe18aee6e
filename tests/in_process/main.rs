//! What a limiter does within one process, case by case, on a manual clock unless a test says
//! otherwise. `laws` holds what is true of every policy, `stress` what needs the processor for
//! itself.

mod bad_input;
mod book_examples;
mod cancel;
mod changes;
mod closing;
mod composition;
#[path = "../faces/mod.rs"]
mod faces;
#[path = "../faces/in_process.rs"]
mod faces_in_process;
mod guarantees;
mod in_flight;
mod keyed;
mod line;
mod line_of_windows;
mod pauses;
mod published_mistakes;
mod rooms;
mod runtimes;
mod shown;
mod snippets;
mod support;
mod true_cost;

use faces::tests_of_face as tests_in_process;
