//! Nothing: a package has to have a library or a program, and this one has examples.
