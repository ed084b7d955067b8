//! Pictures of cost, as SVG: a few lines over marked places, from zero.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 90.0;
const COLOURS: [&str; 4] = ["#1f6feb", "#d1242f", "#2da44e", "#8250df"];

/// A line.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// One value for each mark.
    pub(crate) values: Vec<Option<f64>>,
}

/// What a picture shows.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) title: String,
    /// What the marks are.
    pub(crate) across: String,
    /// What the values are.
    pub(crate) up: String,
    pub(crate) marks: Vec<String>,
    pub(crate) lines: Vec<Line>,
}

/// A round number at or above `most`, and the step that divides it.
fn scale(most: f64) -> (f64, f64) {
    let mut step = 1.0;
    let mut factors = [2.0, 2.5, 2.0].iter().cycle();
    while step * 6.0 < most {
        step *= factors.next().unwrap_or(&2.0);
    }
    ((most / step).ceil().max(1.0) * step, step)
}

impl Line {
    /// The line and its points, where `x` puts a mark and `y` a value.
    fn svg(&self, colour: &str, x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64) -> String {
        let known = self.values.iter().enumerate();
        let known = known.filter_map(|(mark, value)| Some((x(mark), y((*value)?))));
        let points: Vec<(f64, f64)> = known.collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let mut svg = format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            path.join(" ")
        );
        for (x, y) in points {
            writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>")
                .unwrap();
        }
        svg
    }
}

impl Picture {
    pub(crate) fn svg(&self) -> String {
        let values = self.lines.iter().flat_map(|line| line.values.iter().flatten());
        let (highest, step) = scale(values.copied().fold(1.0, f64::max));
        let y = |value: f64| HEIGHT - BOTTOM - value / highest * (HEIGHT - TOP - BOTTOM);
        let gaps = self.marks.len().saturating_sub(1).max(1) as f64;
        let x = |mark: usize| LEFT + mark as f64 * (WIDTH - LEFT - RIGHT) / gaps;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n\
             <text x=\"{LEFT}\" y=\"46\" fill=\"#777\">{}</text>\n",
            self.title, self.up
        );
        let mut value = 0.0;
        while value <= highest + step / 2.0 {
            let at = y(value);
            writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0
            )
            .unwrap();
            value += step;
        }
        for (n, mark) in self.marks.iter().enumerate() {
            let anchor = if n + 1 == self.marks.len() { "end" } else { "middle" };
            writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{mark}</text>",
                x(n),
                HEIGHT - BOTTOM + 20.0
            )
            .unwrap();
        }
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777\">{}</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - BOTTOM + 42.0,
            self.across
        )
        .unwrap();
        for (n, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            svg += &line.svg(colour, x, y);
            let left = LEFT + n as f64 * (WIDTH - LEFT - RIGHT) / self.lines.len() as f64;
            let bottom = HEIGHT - 16.0;
            writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{bottom:.1}\">{}</text>",
                bottom - 11.0,
                left + 18.0,
                line.name
            )
            .unwrap();
        }
        svg + "</svg>\n"
    }
}
