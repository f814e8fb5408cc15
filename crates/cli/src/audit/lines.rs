//! Line by line, however long the file is.

use std::io::{self, BufRead, Read as _};

/// No event of an API server is longer: it stores no object of a tenth of this.
const MAX_LINE: u64 = 16 << 20;

/// The lines of an input, one at a time.
pub(crate) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// That of the last one.
    number: usize,
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Without its end.
    Text(&'a [u8]),
    /// It was skipped.
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), number: 0 }
    }

    /// The next one with its number, from 1; none at the end.
    pub(crate) fn read(&mut self) -> io::Result<Option<(usize, Line<'_>)>> {
        self.buffer.clear();
        let read = self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let text = match self.buffer.strip_suffix(b"\n") {
            Some(text) => text,
            None if self.buffer.len() as u64 >= MAX_LINE => {
                self.input.skip_until(b'\n')?;
                return Ok(Some((self.number, Line::TooLong)));
            }
            None => self.buffer.as_slice(),
        };
        Ok(Some((self.number, Line::Text(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_and_one_without_an_end_is_skipped() {
        let long = vec![b'a'; usize::try_from(MAX_LINE).unwrap() + 1];
        let text = [&b"one\n\n"[..], &long, b"\nlast"].concat();
        let mut lines = Lines::new(&*text);
        assert_eq!(lines.read().unwrap(), Some((1, Line::Text(b"one"))));
        assert_eq!(lines.read().unwrap(), Some((2, Line::Text(b""))));
        assert_eq!(lines.read().unwrap(), Some((3, Line::TooLong)));
        assert_eq!(lines.read().unwrap(), Some((4, Line::Text(b"last"))));
        assert_eq!(lines.read().unwrap(), None);
    }
}
