//! Where the demo says what it sees.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

use std::cell::RefCell;
use std::rc::Rc;

/// Standard output, and what went there.
#[derive(Clone, Default)]
pub struct Screen(Rc<RefCell<String>>);

impl Screen {
    /// Prints a line, or several.
    pub fn say(&self, text: &str) {
        println!("{text}");
        let mut said = self.0.borrow_mut();
        said.push_str(text);
        said.push('\n');
    }

    /// Prints a text that others wrote, below a line that says whose it is.
    pub(super) fn quote(&self, whose: &str, text: &str) {
        let lines = text.trim_end().lines().map(|line| format!("  | {line}"));
        let lines: Vec<_> = lines.map(|line| line.trim_end().to_owned()).collect();
        self.say(&format!("\n{whose}\n\n{}", lines.join("\n")));
    }

    /// What was printed so far.
    pub fn text(&self) -> String {
        self.0.borrow().clone()
    }
}
