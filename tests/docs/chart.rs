//! Lines over two axes as an SVG, readable on light and dark pages.

use std::fmt::Write as _;

const WRITE: &str = "writing to a string cannot fail";

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 350.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 270.0;
/// A row of its own, below what the axis is called.
const KEYS: f64 = BOTTOM + 70.0;
/// About what a letter takes.
const LETTER: f64 = 8.5;

const STYLE: &str = "<style>
  .page { fill: #fff; } text { font: 16px sans-serif; fill: #333; }
  .axis { stroke: #777; } .grid { stroke: #7774; }
  .s0 { stroke: #2a6fb0; } .s1 { stroke: #b0562a; } .s2 { stroke: #3a8a4d; } .s3 { stroke: #7a4fa3; }
  polyline { fill: none; } polyline, .key { stroke-width: 2.5; }
  .s1 { stroke-dasharray: 9 4; } .s2 { stroke-dasharray: 3 4; } .s3 { stroke-dasharray: 12 4 3 4; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #16191d; } text { fill: #ddd; }
    .s0 { stroke: #7ab8f5; } .s1 { stroke: #f0a27a; } .s2 { stroke: #86d69a; } .s3 { stroke: #c8a5ec; }
  }
</style>";

/// A picture.
pub(crate) struct Chart {
    pub title: String,
    /// Names with points.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
    pub x_axis: Axis,
    pub y_axis: Axis,
    pub x_label: &'static str,
}

/// Where an axis ends, and the distance of its marks.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub end: f64,
    pub step: f64,
}

impl Axis {
    fn marks(self) -> impl Iterator<Item = f64> {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a handful of marks"
        )]
        let count = (self.end / self.step).round() as u32;
        (0..=count).map(move |mark| f64::from(mark) * self.step)
    }
}

impl Chart {
    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_axis.end * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - value / self.y_axis.end * (BOTTOM - TOP)
    }

    /// The picture as text.
    pub(crate) fn draw(&self) -> String {
        let title = &self.title;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
             <title>{title}</title>\n{STYLE}\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
             <text x=\"{LEFT}\" y=\"20\">{title}</text>\n"
        );
        self.axes(&mut out);
        let mut key_at = LEFT;
        for (number, (name, points)) in self.series.iter().enumerate() {
            let place =
                |(at, value): &(f64, f64)| format!("{:.1},{:.1}", self.x(*at), self.y(*value));
            let line: Vec<String> = points.iter().map(place).collect();
            let line = line.join(" ");
            writeln!(out, "<polyline class=\"s{number}\" points=\"{line}\"/>").expect(WRITE);
            if !name.is_empty() {
                key_at = key(&mut out, number, name, key_at);
            }
        }
        out.push_str("</svg>\n");
        out
    }

    fn axes(&self, out: &mut String) {
        let end = WIDTH - RIGHT;
        for mark in self.y_axis.marks() {
            let y = self.y(mark);
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
                LEFT - 8.0,
                y + 5.0
            )
            .expect(WRITE);
        }
        for mark in self.x_axis.marks() {
            let x = self.x(mark);
            writeln!(
                out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{}\"/>\n\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{mark}</text>",
                BOTTOM + 5.0,
                BOTTOM + 23.0
            )
            .expect(WRITE);
        }
        writeln!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/>\n\
             <text x=\"{end}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            BOTTOM + 44.0,
            self.x_label
        )
        .expect(WRITE);
    }
}

/// The line and the name of a series; where the next one begins.
fn key(out: &mut String, number: usize, name: &str, at: f64) -> f64 {
    let y = KEYS - 5.0;
    writeln!(
        out,
        "<line class=\"key s{number}\" x1=\"{at}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\n\
         <text x=\"{}\" y=\"{KEYS}\">{name}</text>",
        at + 30.0,
        at + 36.0
    )
    .expect(WRITE);
    #[allow(clippy::cast_precision_loss, reason = "a handful of letters")]
    let width = name.len() as f64 * LETTER;
    at + 36.0 + width + 20.0
}
