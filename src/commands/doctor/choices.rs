//! Every preset against this machine and its rates.

use k3_config::{
    Bytes, Headroom, HostMemory, MemoryRequest, Origin, PlanRefusal, Prediction, Preset, Settings,
    Sourced,
};
use k3_io::PagePolicy;
use serde::Serialize;

use super::arithmetic::Arithmetic;
use crate::commands::plan::Found;
use crate::error::{CliError, Positions};
use crate::planning;

/// What was measured.
pub(super) struct Rates<'a> {
    /// Of all disks together, as a run reads.
    pub(super) disk_bytes_per_second: Option<f64>,
    pub(super) arithmetic: &'a Arithmetic,
}

/// One preset.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Choice {
    pub(super) preset: Preset,
    /// Its total; nothing where `auto` comes to nothing.
    pub(super) memory: Option<Bytes>,
    /// Whether a run with it would start and not be ended half-way.
    pub(super) fits: bool,
    /// Why not.
    pub(super) obstacle: Option<String>,
    /// What a run of the model would reserve.
    pub(super) planned: Option<Bytes>,
    /// What it reads for a token whose experts are all missed.
    pub(super) bytes_per_token: Option<f64>,
    /// Time the disk takes for that, at the rate measured.
    pub(super) disk_seconds: Option<f64>,
    /// Time the matrices take.
    pub(super) arithmetic_seconds: Option<f64>,
    /// The larger of the two: reading and computing overlap.
    pub(super) seconds_per_token: Option<f64>,
}

/// All presets, for the model if there is one.
///
/// # Errors
///
/// Settings that contradict each other, whatever the budget.
pub(super) fn all(
    model: Option<&Found>,
    settings: &Settings,
    host: &HostMemory,
    pages: PagePolicy,
    rates: &Rates<'_>,
) -> Result<Vec<Choice>, CliError> {
    let headroom = planning::headroom(host, pages);
    let choose = |&preset: &Preset| choose(preset, model, settings, host, headroom.as_ref(), rates);
    Preset::ALL.iter().map(choose).collect()
}

fn choose(
    preset: Preset,
    model: Option<&Found>,
    settings: &Settings,
    host: &HostMemory,
    headroom: Option<&Headroom>,
    rates: &Rates<'_>,
) -> Result<Choice, CliError> {
    let mut choice = Choice {
        preset,
        memory: preset.total(),
        fits: false,
        obstacle: None,
        planned: None,
        bytes_per_token: None,
        disk_seconds: None,
        arithmetic_seconds: None,
        seconds_per_token: None,
    };
    let mut settings = settings.clone();
    let flag = Origin::Flag {
        name: "--preset".to_owned(),
    };
    settings.memory = Sourced::new(MemoryRequest::Preset(preset), flag);
    let budget = match settings.budget(|| host.clone()) {
        Ok(budget) => budget,
        Err(error) => {
            choice.obstacle = Some(error.to_string());
            return Ok(choice);
        }
    };
    choice.memory = Some(budget.total);
    let Some(model) = model else {
        choice.judge(budget.total, headroom);
        return Ok(choice);
    };
    match model.plan(&budget, &settings) {
        Ok(plan) => {
            choice.planned = Some(plan.planned);
            choice.judge(plan.planned, headroom);
            choice.predict(&plan.prediction, model, rates);
        }
        Err(refusal @ PlanRefusal::TooSmall(_)) => {
            choice.obstacle = Some(refusal.to_string());
        }
        Err(refusal) => {
            let positions = Positions::Context;
            return Err(CliError::refused_plan(refusal, positions, &settings));
        }
    }
    Ok(choice)
}

impl Choice {
    /// Whether the machine has `needed`.
    fn judge(&mut self, needed: Bytes, headroom: Option<&Headroom>) {
        match headroom {
            Some(room) if needed > room.bytes => {
                self.obstacle = Some(format!(
                    "it takes {needed}, and {} has {} to give",
                    room.name(),
                    room.bytes
                ));
            }
            // Where the kernel does not tell, nothing speaks against it.
            _ => self.fits = true,
        }
    }

    fn predict(&mut self, prediction: &Prediction, model: &Found, rates: &Rates<'_>) {
        let footprint = &model.footprint;
        let bytes = prediction.bytes_per_token(0.0);
        let arithmetic = rates
            .arithmetic
            .seconds(footprint.trunk_bytes(), footprint.expert_bytes_per_token());
        let disk = rates.disk_bytes_per_second.map(|rate| bytes / rate);
        self.bytes_per_token = Some(bytes);
        self.disk_seconds = disk;
        self.arithmetic_seconds = Some(arithmetic);
        self.seconds_per_token = disk.map(|disk| disk.max(arithmetic));
    }
}

/// The choice that fits and is fastest, of equals the one that takes least:
/// times within a hundredth are equal. Without a model the largest that fits.
pub(super) fn recommended(choices: &[Choice]) -> Option<&Choice> {
    // More than `auto` leaves nothing to the rest of the machine.
    let auto = choices
        .iter()
        .find(|choice| choice.preset == Preset::Auto)
        .and_then(|choice| choice.memory);
    let fitting = choices.iter().filter(|choice| {
        let taken = choice.planned.or(choice.memory);
        choice.fits && taken.zip(auto).is_none_or(|(taken, auto)| taken <= auto)
    });
    let cost = |choice: &Choice| choice.seconds_per_token.or(choice.bytes_per_token);
    let least = fitting
        .clone()
        .filter_map(cost)
        .min_by(f64::total_cmp)
        .map(|least| least * 1.01);
    match least {
        Some(limit) => fitting
            .filter(|choice| cost(choice).is_some_and(|cost| cost <= limit))
            .min_by_key(|choice| choice.planned),
        None => fitting.max_by_key(|choice| choice.memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(preset: Preset, memory: u64, fits: bool, seconds: Option<f64>) -> Choice {
        Choice {
            preset,
            memory: Some(Bytes(memory)),
            fits,
            obstacle: None,
            planned: seconds.map(|_| Bytes(memory)),
            bytes_per_token: seconds,
            disk_seconds: None,
            arithmetic_seconds: None,
            seconds_per_token: seconds,
        }
    }

    fn best(choices: &[Choice]) -> Option<Preset> {
        recommended(choices).map(|choice| choice.preset)
    }

    #[test]
    fn the_fastest_that_fits_and_of_equals_the_smallest() {
        let mut choices = vec![
            choice(Preset::Floor, 1, true, Some(60.0)),
            choice(Preset::Laptop, 8, true, Some(50.0)),
            choice(Preset::Desktop, 32, false, Some(40.0)),
            choice(Preset::Auto, 20, true, Some(45.0)),
        ];
        assert_eq!(best(&choices), Some(Preset::Auto));
        choices[3].seconds_per_token = Some(49.9);
        assert_eq!(best(&choices), Some(Preset::Laptop));
        // A model so small that all presets hold it whole.
        for choice in &mut choices {
            choice.seconds_per_token = Some(0.0);
        }
        assert_eq!(best(&choices), Some(Preset::Floor));
        for choice in &mut choices {
            choice.fits = false;
        }
        assert_eq!(best(&choices), None);
    }

    #[test]
    fn what_leaves_nothing_to_the_machine_is_not_recommended() {
        let choices = [
            choice(Preset::Floor, 1, true, Some(60.0)),
            choice(Preset::Laptop, 8, true, Some(50.0)),
            choice(Preset::Auto, 7, true, Some(51.0)),
        ];
        assert_eq!(best(&choices), Some(Preset::Auto));
    }

    #[test]
    fn without_a_model_the_largest() {
        let choices = [
            choice(Preset::Floor, 1, true, None),
            choice(Preset::Laptop, 8, true, None),
            choice(Preset::Auto, 20, true, None),
        ];
        assert_eq!(best(&choices), Some(Preset::Auto));
    }
}
