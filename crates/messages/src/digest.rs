//! Many messages to one recipient, as one: a line for each, with the command that keeps the namespace.

use std::fmt::Write as _;

use crate::escape::{one_line, write};
use crate::{MAX_SUBJECT, Part, Rendered};

/// One of many messages, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestLine<'a> {
    /// What it says, as the subject of its mail does.
    pub subject: &'a str,
    /// The command that keeps the namespace, if one does.
    pub keep: Option<&'a str>,
}

/// The texts of many messages as one. No template of users is used for it: their subjects are.
pub fn digest(lines: &[DigestLine<'_>]) -> Rendered {
    let subject = format!("{} messages about your namespaces", lines.len());
    let (mut text, mut slack) = (format!("{subject}:\n\n"), format!("*{subject}*\n"));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{subject}</title>\n</head>\n\
         <body style=\"margin:0;padding:16px;background:#ffffff;color:#1f2328;font-family:Arial,Helvetica,sans-serif;\
         font-size:14px;line-height:1.5\">\n<h1 style=\"margin:0 0 12px;font-size:18px\">{subject}</h1>\n<ul>\n"
    );
    for line in lines {
        let subject = one_line(line.subject, MAX_SUBJECT);
        // Writing into a String cannot fail.
        let _ = writeln!(text, "- {subject}");
        let _ = write_all(&mut html, Part::Html, ["<li>", "</li>\n"], &subject, line.keep);
        let _ = write_all(&mut slack, Part::Slack, ["• ", "\n"], &subject, line.keep);
        if let Some(keep) = line.keep {
            let _ = writeln!(text, "  To keep the namespace, run: {keep}");
        }
    }
    text.push_str("\nMore about each: coppice explain NAMESPACE\n");
    html.push_str(
        "</ul>\n<p>More about each: <code>coppice explain NAMESPACE</code></p>\n</body>\n</html>\n",
    );
    slack.push_str("More about each: `coppice explain NAMESPACE`");
    Rendered { subject, text, html, slack }
}

/// One line, between what begins and what ends it.
fn write_all(
    out: &mut String,
    part: Part,
    [begin, end]: [&str; 2],
    subject: &str,
    keep: Option<&str>,
) -> std::fmt::Result {
    out.push_str(begin);
    write(out, part, subject)?;
    if let Some(keep) = keep {
        let [before, after] = if part == Part::Html {
            ["<br>To keep it: <code>", "</code>"]
        } else {
            [" – to keep it: `", "`"]
        };
        out.push_str(before);
        // It would end the code in Slack.
        write(out, part, &keep.replace('`', "'"))?;
        out.push_str(after);
    }
    out.push_str(end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_has_a_line_with_its_command() {
        let lines = [
            DigestLine {
                subject: "Namespace ci-1 <&> will\nbe deleted",
                keep: Some("coppice hold ci-1 --reason \"still needed\""),
            },
            DigestLine { subject: "Namespace ci-2 will not be deleted", keep: None },
        ];
        let Rendered { subject, text, html, slack } = digest(&lines);
        assert_eq!(subject, "2 messages about your namespaces");
        assert!(text.contains("\n- Namespace ci-1 <&> will be deleted\n  To keep the namespace, run: coppice hold ci-1 --reason \"still needed\"\n- Namespace ci-2"), "{text}");
        assert!(html.contains("<li>Namespace ci-1 &lt;&amp;&gt; will be deleted<br>To keep it: <code>coppice hold ci-1 --reason &quot;still needed&quot;</code></li>\n<li>Namespace ci-2 will not be deleted</li>"), "{html}");
        assert!(slack.contains("\n• Namespace ci-1 &lt;&amp;&gt; will be deleted – to keep it: `coppice hold ci-1 --reason \"still needed\"`\n• Namespace ci-2 will not be deleted\n"), "{slack}");
    }
}
