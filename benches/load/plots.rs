//! Curves as SVG: on no background and in tones that a light and a dark page both leave readable.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// Curves over a logarithmic axis.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    pub title: String,
    pub x: String,
    pub y: String,
    pub curves: Vec<Curve>,
}

/// Points from left to right.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// The document.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| anyhow!("{}: {error}", self.title))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let (left, right, top) = self.extent();
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(14)
            // The last label is wider than its place.
            .margin_right(34)
            .caption(&self.title, (FONT, 20).into_font().color(&INK))
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d((left..right).log_scale(), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.3))
            .axis_style(INK)
            .label_style((FONT, 16).into_font().color(&INK))
            .x_label_formatter(&|x| crate::report::short(*x))
            .x_desc(&self.x)
            .y_desc(&self.y)
            .draw()?;
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2));
            let end = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
            chart.draw_series(line.point_size(3))?.label(&curve.name).legend(end);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 16).into_font().color(&INK))
            .draw()?;
        area.present()?;
        Ok(())
    }

    /// The first and last x, and a y with room for the legend above the highest.
    fn extent(&self) -> (f64, f64, f64) {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let left = points().map(|(x, _)| *x).reduce(f64::min).unwrap_or(1.0);
        let right = points().map(|(x, _)| *x).reduce(f64::max).unwrap_or(left);
        let top = points().fold(1.0, |top, (_, y)| y.max(top));
        // An axis of no length has no marks.
        (left, right.max(left * 2.0), top * HEADROOM)
    }
}

const SIZE: (u32, u32) = (720, 360);

/// A browser's own.
const FONT: &str = "sans-serif";

/// As far from white as from GitHub's dark page.
const INK: RGBColor = RGBColor(125, 133, 144);

/// Apart from each other for any eye.
const COLOURS: [RGBColor; 4] =
    [RGBColor(47, 129, 247), RGBColor(219, 109, 40), RGBColor(63, 160, 80), RGBColor(191, 80, 160)];

const HEADROOM: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_axes_and_curves() {
        let curve = Curve { name: "routes".to_owned(), points: vec![(1.0, 1.0), (50.0, 1.25)] };
        let plot = Plot {
            title: "Cost".to_owned(),
            x: "how many".to_owned(),
            y: "times the first".to_owned(),
            curves: vec![curve],
        };
        let svg = plot.svg().unwrap();
        for text in ["Cost", "how many", "times the first", "routes", "<polyline"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        assert_eq!(plot.extent(), (1.0, 50.0, 1.875));
    }

    #[test]
    fn a_plot_of_nothing_is_none_the_less_a_plot() {
        assert!(Plot::default().svg().is_ok());
    }
}
