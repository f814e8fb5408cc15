//! Regular expressions over names of namespaces as globs: only those that a glob expresses exactly, because a selector that is too wide
//! deletes.
//!
//! That system matches the whole name (Python's `re.fullmatch`). Names of namespaces have lower-case letters, digits and `-`, and
//! neither begin nor end with `-`: what needs anything else matches none.

use std::iter::Peekable;
use std::str::Chars;

use thiserror::Error;

/// The most globs that one expression becomes.
const MAX_GLOBS: usize = 256;
/// The most groups in groups that are looked into.
const MAX_DEPTH: usize = 20;
/// The longest name of a namespace.
const MAX_NAME: usize = 63;

/// Why no glob matches exactly what an expression matches.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum PatternError {
    #[error("it is no regular expression: a ( has no )")]
    GroupNotClosed,
    #[error("it is no regular expression: a ) has no (")]
    GroupNotOpened,
    #[error("it is no regular expression: a [ has no ]")]
    ClassNotClosed,
    #[error("it is no regular expression: it ends with \\")]
    EndsWithBackslash,
    #[error("it is no regular expression: {0} repeats nothing")]
    RepeatsNothing(char),
    #[error("{0} repeats the one character before it (for any characters write .*)")]
    RepeatsCharacter(char),
    #[error("{0} repeats the group before it")]
    RepeatsGroup(char),
    #[error("{0} repeats what is before it")]
    Repeats(char),
    #[error("{0} stands in the middle")]
    AnchorInside(char),
    #[error("{0} stands for some characters and not for others")]
    SomeCharacters(String),
    #[error(". stands for exactly one character")]
    ExactlyOne,
    #[error(".+ stands for one character at least, * also for none")]
    OneOrMore,
    #[error(".+.+ stands for two characters at least")]
    TwoOrMore,
    #[error("(? begins what a glob does not have")]
    Extension,
    #[error("it has more than {MAX_DEPTH} groups in each other")]
    TooDeep,
    #[error("it has more than {MAX_GLOBS} alternatives")]
    TooManyAlternatives,
}

/// A part of a text that an expression matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    /// Any number of characters.
    AnyNumber,
    /// One character or more.
    OneOrMore,
}

/// The texts that an expression matches: one of these.
type Branches = Vec<Vec<Token>>;

/// The globs that match exactly the names that an expression matches; none if it matches no name of a namespace.
pub(super) fn globs(expression: &str) -> Result<Vec<String>, PatternError> {
    let mut parser = Parser { chars: expression.chars().peekable(), depth: 0 };
    let branches = parser.alternatives(true)?;
    if parser.chars.peek().is_some() {
        return Err(PatternError::GroupNotOpened);
    }
    let mut globs = Vec::new();
    for branch in branches {
        if let Some(glob) = glob(&branch)?
            && !globs.contains(&glob)
        {
            globs.push(glob);
        }
    }
    Ok(globs)
}

/// Globs that match every name that an expression may match, and others: for what must not be taken for matched by another
/// one.
pub(super) fn wider_globs(expression: &str) -> Vec<String> {
    if let Ok(globs) = globs(expression) {
        return globs;
    }
    let literal: String = expression
        .trim_start_matches('^')
        .chars()
        .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')
        .collect();
    let next = expression.trim_start_matches('^').chars().nth(literal.len());
    let known = match next {
        // What follows may leave the last character out.
        Some('*' | '?' | '{') => literal.get(..literal.len().saturating_sub(1)).unwrap_or_default(),
        _ => &literal,
    };
    let alternatives = expression.contains('|') || expression.contains("(?");
    vec![if alternatives { "*".to_owned() } else { format!("{known}*") }]
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    depth: usize,
}

impl Parser<'_> {
    /// Alternatives until the end or the `)` of a group. `first`: whether nothing comes before them.
    fn alternatives(&mut self, first: bool) -> Result<Branches, PatternError> {
        let mut all = self.sequence(first)?;
        while self.chars.next_if_eq(&'|').is_some() {
            all.append(&mut self.sequence(first)?);
            limit(&all)?;
        }
        Ok(all)
    }

    fn sequence(&mut self, first: bool) -> Result<Branches, PatternError> {
        let mut all: Branches = vec![Vec::new()];
        while let Some(c) = self.chars.next_if(|c| !matches!(c, '|' | ')')) {
            let begins = first && all.iter().all(Vec::is_empty);
            let atom = match c {
                '^' if begins => continue,
                '$' if self.at_end() => continue,
                '.' => vec![vec![self.of_any_character()?]],
                '(' => self.group(begins)?,
                '[' => self.class()?,
                '\\' => match self.escape(begins)? {
                    Some(c) => self.quantified(vec![vec![Token::Char(c)]])?,
                    None => continue,
                },
                '*' | '+' | '?' | '{' => {
                    return Err(PatternError::RepeatsNothing(c));
                }
                '^' | '$' => return Err(PatternError::AnchorInside(c)),
                c => self.quantified(vec![vec![Token::Char(c)]])?,
            };
            all = all.iter().flat_map(|left| atom.iter().map(|right| [&left[..], right].concat())).collect();
            limit(&all)?;
        }
        Ok(all)
    }

    /// Whether a `$` stands at the end of the expression, or of one of its alternatives.
    fn at_end(&mut self) -> bool {
        self.depth == 0 && matches!(self.chars.peek(), None | Some('|'))
    }

    /// What a `.` that was read stands for.
    fn of_any_character(&mut self) -> Result<Token, PatternError> {
        let token = match self.chars.next_if(|c| matches!(c, '*' | '+')) {
            Some('*') => Token::AnyNumber,
            Some(_) => Token::OneOrMore,
            None => return Err(PatternError::ExactlyOne),
        };
        // A lazy one matches the same whole names.
        self.chars.next_if_eq(&'?');
        Ok(token)
    }

    fn group(&mut self, first: bool) -> Result<Branches, PatternError> {
        if self.chars.next_if_eq(&'?').is_some() && self.chars.next_if_eq(&':').is_none() {
            return Err(PatternError::Extension);
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(PatternError::TooDeep);
        }
        let all = self.alternatives(first)?;
        self.depth -= 1;
        if self.chars.next_if_eq(&')').is_none() {
            return Err(PatternError::GroupNotClosed);
        }
        self.quantified(all)
    }

    /// A class of characters, which only stands for any number of characters if it has every character of names.
    fn class(&mut self) -> Result<Branches, PatternError> {
        let mut written = String::new();
        loop {
            match self.chars.next() {
                Some(']') if !written.is_empty() => break,
                Some(c) => written.push(c),
                None => return Err(PatternError::ClassNotClosed),
            }
        }
        let every = [
            "a-z0-9-",
            "0-9a-z-",
            "-a-z0-9",
            "-0-9a-z",
            "a-z0-9\\-",
            "0-9a-z\\-",
            "a-zA-Z0-9-",
            "A-Za-z0-9-",
        ];
        if every.contains(&&*written) && matches!(self.chars.peek(), Some('*' | '+')) {
            return Ok(vec![vec![self.of_any_character()?]]);
        }
        Err(PatternError::SomeCharacters(format!("[{written}]")))
    }

    /// The character that a backslash stands before; none if it is an anchor.
    fn escape(&mut self, begins: bool) -> Result<Option<char>, PatternError> {
        match self.chars.next() {
            Some('A') if begins => Ok(None),
            Some('Z') if self.at_end() => Ok(None),
            Some(c) if !c.is_ascii_alphanumeric() => Ok(Some(c)),
            Some(c) => Err(PatternError::SomeCharacters(format!("\\{c}"))),
            None => Err(PatternError::EndsWithBackslash),
        }
    }

    /// What was read, or nothing, if a `?` follows. Other repetitions are none of a glob.
    fn quantified(&mut self, mut all: Branches) -> Result<Branches, PatternError> {
        match self.chars.next_if(|c| matches!(c, '*' | '+' | '?' | '{')) {
            None => Ok(all),
            Some('?') if !matches!(self.chars.peek(), Some('*' | '+' | '?' | '{')) => {
                all.push(Vec::new());
                Ok(all)
            }
            Some(c @ ('*' | '+')) => Err(match all.as_slice() {
                [last] if last.len() == 1 => PatternError::RepeatsCharacter(c),
                _ => PatternError::RepeatsGroup(c),
            }),
            Some(c) => Err(PatternError::Repeats(c)),
        }
    }
}

fn limit(all: &Branches) -> Result<(), PatternError> {
    if all.len() > MAX_GLOBS {
        return Err(PatternError::TooManyAlternatives);
    }
    Ok(())
}

/// A glob for one alternative; none if no name matches it.
fn glob(branch: &[Token]) -> Result<Option<String>, PatternError> {
    let mut tokens: Vec<Token> = Vec::new();
    for token in branch {
        let both = match (tokens.last(), token) {
            (Some(Token::OneOrMore), Token::OneOrMore) => {
                return Err(PatternError::TwoOrMore);
            }
            (Some(Token::AnyNumber), Token::AnyNumber | Token::OneOrMore)
            | (Some(Token::OneOrMore), Token::AnyNumber) => {
                tokens.pop().filter(|last| *last == Token::OneOrMore).unwrap_or(*token)
            }
            _ => *token,
        };
        tokens.push(both);
    }
    let literals = tokens.iter().filter(|token| matches!(token, Token::Char(_))).count();
    let is_name = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    let never = tokens.iter().any(|token| matches!(token, Token::Char(c) if !is_name(c)));
    if never || literals > MAX_NAME || tokens.is_empty() {
        return Ok(None);
    }
    let hyphen = |at: Option<&Token>| at == Some(&Token::Char('-'));
    let mut glob = String::new();
    for (at, token) in tokens.iter().enumerate() {
        let (before, after) = (at.checked_sub(1).and_then(|at| tokens.get(at)), tokens.get(at + 1));
        match token {
            Token::Char(c) => glob.push(*c),
            Token::AnyNumber => glob.push('*'),
            // No name begins or ends with a hyphen, or is empty: there, `*` stands for one character at least, too.
            Token::OneOrMore if tokens.len() == 1 => glob.push('*'),
            Token::OneOrMore if after.is_none() && hyphen(before) || before.is_none() && hyphen(after) => {
                glob.push('*');
            }
            Token::OneOrMore => {
                return Err(PatternError::OneOrMore);
            }
        }
    }
    Ok(Some(glob))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_prefixes_suffixes_and_alternatives_are_globs() {
        for (expression, expected) in [
            ("ci", &["ci"][..]),
            ("ci-.*", &["ci-*"]),
            ("^ci-.*$", &["ci-*"]),
            ("\\Aci-.*\\Z", &["ci-*"]),
            ("ci-.*?", &["ci-*"]),
            (".*-ci", &["*-ci"]),
            (".*", &["*"]),
            (".+", &["*"]),
            ("ci-.+", &["ci-*"]),
            (".+-ci", &["*-ci"]),
            ("ci-.*-x", &["ci-*-x"]),
            ("a-.*.*", &["a-*"]),
            ("(ci|dev)-.*", &["ci-*", "dev-*"]),
            ("(?:ci|dev)-.*", &["ci-*", "dev-*"]),
            ("ci-.*|^dev$", &["ci-*", "dev"]),
            ("(a|b)(c|d)", &["ac", "ad", "bc", "bd"]),
            ("ci(-x)?", &["ci-x", "ci"]),
            ("ab?", &["ab", "a"]),
            ("a\\-b", &["a-b"]),
            ("ci-[a-z0-9-]*", &["ci-*"]),
            ("ci-[-a-z0-9]+", &["ci-*"]),
            ("(a|a)", &["a"]),
            // What no name has matches no name.
            ("CI-.*", &[]),
            ("a\\.b", &[]),
            ("a_.*", &[]),
            ("(ci|CI)-.*", &["ci-*"]),
            ("", &[]),
        ] {
            assert_eq!(globs(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn what_no_glob_expresses_is_refused_with_the_reason() {
        for (expression, why) in [
            ("ci-*", "* repeats the one character before it"),
            ("ci-+", "+ repeats the one character before it"),
            ("(ab)*", "* repeats the group before it"),
            ("(ab)+", "+ repeats the group before it"),
            ("a{2}", "{ repeats what is before it"),
            ("ci-.", ". stands for exactly one character"),
            ("ci-.?", ". stands for exactly one character"),
            ("ci-.{3}", ". stands for exactly one character"),
            ("ci.+", ".+ stands for one character at least, * also for none"),
            ("a-.+-b", ".+ stands for one character at least, * also for none"),
            (".+.+", "two characters at least"),
            ("ci-\\d+", "\\d stands for some characters and not for others"),
            ("ci-[0-9]", "[0-9] stands for some characters"),
            ("ci-[^a]*", "[^a] stands for some characters"),
            ("ci-[a-z]*", "[a-z] stands for some characters"),
            ("(?!ci-keep).*", "(? begins what a glob does not have"),
            ("(?i)ci-.*", "(? begins what a glob does not have"),
            ("(?P<n>a)", "(? begins what a glob does not have"),
            ("(a)\\1", "\\1 stands for"),
            ("a^b", "^ stands in the middle"),
            ("a$b", "$ stands in the middle"),
            ("(a$)b", "$ stands in the middle"),
            ("*", "is no regular expression"),
            ("a|*", "is no regular expression"),
            ("(a", "a ( has no )"),
            ("a)", "a ) has no ("),
            ("[a", "a [ has no ]"),
            ("a\\", "ends with \\"),
            ("a??", "? repeats what is before it"),
            ("(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)", "more than 256 alternatives"),
        ] {
            let found = globs(expression).unwrap_err().to_string();
            assert!(found.contains(why), "{expression}: {found}");
        }
    }

    #[test]
    fn groups_without_end_are_refused() {
        let deep = "(".repeat(100_000);
        assert!(globs(&deep).unwrap_err().to_string().contains("more than 20 groups"));
    }

    #[test]
    fn what_is_not_expressed_is_taken_for_more_and_never_for_less() {
        for (expression, expected) in [
            ("ci-\\d+", "ci-*"),
            ("^ci-[0-9]", "ci-*"),
            ("ci-*", "ci*"),
            ("ab?c{2}", "a*"),
            ("a+b", "a*"),
            ("a|b\\d", "*"),
            ("(?i)ci", "*"),
            ("(a)\\d", "*"),
            ("*", "*"),
        ] {
            assert_eq!(wider_globs(expression), [expected], "{expression}");
        }
        assert_eq!(wider_globs("ci-.*"), ["ci-*"]);
    }
}
