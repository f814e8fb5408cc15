//! What keeps the engine's parser within its stack. It calls itself for each operator of an expression and each `elif`, without a
//! limit: `not not not ...` would end the process. For brackets and blocks its limit is higher than any template needs.

/// The most words and signs of a tag.
const MAX_TOKENS: usize = 150;
/// The most `elif` of a template.
const MAX_BRANCHES: usize = 32;
/// The most brackets, and the most blocks, within one another.
const MAX_DEPTH: usize = 16;

/// What is between delimiters.
#[derive(Default)]
struct Tag {
    /// Its bytes, with the delimiter at its end.
    length: usize,
    /// Its words and signs.
    tokens: usize,
    /// The most brackets within one another.
    deepest: usize,
    /// Whether there is a `=` outside of brackets.
    assigns: bool,
}

/// The line of what is too deep, and what to do about it. Tags begin and end as they do for the engine.
pub(crate) fn check(source: &str) -> Result<(), (usize, String)> {
    let bytes = source.as_bytes();
    let (mut at, mut open, mut blocks, mut branches) = (0, 0, 0_usize, 0);
    while let Some(before) = bytes[at..].windows(2).position(|two| matches!(two, b"{{" | b"{%" | b"{#")) {
        let inside = at + before + 2;
        let rest = &bytes[inside..];
        let end = match bytes[inside - 1] {
            b'{' => *b"}}",
            b'%' => *b"%}",
            _ => {
                // The engine says what has no end.
                let Some(length) = rest.windows(2).position(|two| two == b"#}") else { return Ok(()) };
                at = inside + length + 2;
                continue;
            }
        };
        let tag = tag(rest, end, &mut open);
        let word = if end == *b"%}" { first_word(&rest[..tag.length]) } else { b"" };
        match word {
            b"elif" => branches += 1,
            b"set" if tag.assigns => {}
            b"autoescape" | b"filter" | b"for" | b"if" | b"set" | b"with" => blocks += 1,
            _ if word.starts_with(b"end") => blocks = blocks.saturating_sub(1),
            _ => {}
        }
        let problem = if tag.tokens > MAX_TOKENS {
            format!(
                "more than {MAX_TOKENS} words and signs between delimiters: write parts of it in {{% set %}}"
            )
        } else if tag.deepest > MAX_DEPTH || blocks > MAX_DEPTH {
            format!("more than {MAX_DEPTH} brackets or blocks within one another: write fewer")
        } else if branches > MAX_BRANCHES {
            format!("more than {MAX_BRANCHES} times elif: write {{% if %}} one after the other")
        } else if word == b"raw" {
            "there is no raw: write {{ '{{' }} for {{".to_owned()
        } else {
            at = inside + tag.length;
            continue;
        };
        return Err((bytes[..inside].split(|byte| *byte == b'\n').count(), problem));
    }
    Ok(())
}

/// Reads up to the end of a tag, which is none in a text or in brackets, of which the engine counts those of earlier tags, too.
fn tag(rest: &[u8], end: [u8; 2], open: &mut i32) -> Tag {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut tag = Tag::default();
    while let Some(&byte) = rest.get(tag.length) {
        if *open == 0 && rest[tag.length..].starts_with(&end) {
            tag.length += 2;
            return tag;
        }
        let continues = tag.length > 0 && is_word(byte) && is_word(rest[tag.length - 1]);
        tag.tokens += usize::from(!byte.is_ascii_whitespace() && !continues);
        tag.length += 1;
        match byte {
            b'(' | b'[' | b'{' => *open += 1,
            b')' | b']' | b'}' => *open -= 1,
            b'"' | b'\'' => tag.length += text(&rest[tag.length..], byte),
            b'=' => tag.assigns |= *open == 0,
            _ => {}
        }
        tag.deepest = tag.deepest.max(usize::try_from(*open).unwrap_or(0));
    }
    tag
}

/// The bytes of a text up to and with its quote.
fn text(rest: &[u8], quote: u8) -> usize {
    let mut escaped = false;
    let end = rest.iter().position(|&byte| {
        let ends = byte == quote && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |end| end + 1)
}

fn first_word(tag: &[u8]) -> &[u8] {
    let begins = tag.iter().position(u8::is_ascii_alphanumeric).unwrap_or(tag.len());
    let word = &tag[begins..];
    &word[..word.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(word.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_end_where_the_engine_ends_them() {
        let long = "+1".repeat(MAX_TOKENS);
        for hidden in [
            format!("a\n{{{{ 1{long} }}}}"),
            format!("a\n{{{{ '}}}}' ~ 1{long} }}}}"),
            format!("a\n{{{{ '\\'}}}}' ~ 1{long} }}}}"),
            format!("a\n{{{{ [{{1: {{2: 3}}}}, 1{long}] }}}}"),
            format!("a\n{{% set a = '%}}' ~ 1{long} %}}"),
            format!("{{# {{{{ '}}}} #}}\n{{{{ 1{long} }}}}"),
            format!("{{{{ ) }}}}\n{{{{ 1{long}"),
        ] {
            let (line, problem) = check(&hidden).unwrap_err();
            assert!(line <= 2 && problem.contains("150 words and signs"), "{hidden}: {line}: {problem}");
        }
        for harmless in
            [format!("{{# {long} #}}"), format!("{{{{ a }}}}{long}{{{{ b }}}}"), "{# no end".to_owned()]
        {
            assert_eq!(check(&harmless), Ok(()), "{harmless}");
        }
    }

    #[test]
    fn what_is_not_counted_is_refused() {
        assert_eq!(
            check("a\n\n{%- raw -%}"),
            Err((3, "there is no raw: write {{ '{{' }} for {{".to_owned()))
        );
        let branches = "{% if a %}".to_owned() + &"\n{%- elif a %}".repeat(MAX_BRANCHES + 1) + "{% endif %}";
        assert_eq!(check(&branches).unwrap_err().0, MAX_BRANCHES + 2);
    }

    #[test]
    fn depth_is_limited_and_length_is_not() {
        for (open, close) in [
            ("{% if a %}", "{% endif %}"),
            ("{%- for a in b -%}", "{%+ endfor %}"),
            ("{% set a|replace(b='c') %}", "{% endset %}"),
        ] {
            let within = |times: usize| open.repeat(times) + "a" + &close.repeat(times);
            assert_eq!(check(&within(MAX_DEPTH).repeat(3)), Ok(()), "{open}");
            assert!(check(&within(MAX_DEPTH + 1)).unwrap_err().1.contains("more than 16 brackets or blocks"));
        }
        assert_eq!(check(&"{% set a = b == c %}".repeat(100)), Ok(()));
        let brackets = |times: usize| format!("{{{{ {}1{} }}}}", "([".repeat(times), "])".repeat(times));
        assert_eq!(check(&brackets(8).repeat(3)), Ok(()));
        assert!(check(&brackets(9)).unwrap_err().1.contains("more than 16 brackets or blocks"));
    }
}
