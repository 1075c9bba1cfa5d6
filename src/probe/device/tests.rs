use super::*;

#[test]
fn the_numbers_of_a_process_are_read_from_its_status() {
    assert_eq!(namespaces(b"Name:\tx\nNStgid:\t9\nNSpid:\t1201\t7\nNSpgid:\t1\n"), [1201, 7]);
    assert_eq!(namespaces(b"Name:\tx\n"), [0; 0]);
}

/// A probe over these devices, as if a reader had found them.
fn probe(devices: usize) -> DeviceProbe {
    let mut probe =
        DeviceProbe::begin(Place { nvml: Some("/nowhere".into()), sys: Some("/nowhere".into()), ..Place::default() });
    let device = Device { is_counted: true, ..Device::of(Vendor::Nvidia) };
    probe.devices = vec![device; devices];
    probe.before = vec![(Some(100), HashSet::new()); devices];
    probe.known.add(7, &[]);
    probe
}

fn shown(used: u64, processes: Result<Vec<(u32, u64)>, String>) -> Shown {
    let listed =
        |all: Vec<(u32, u64)>| all.into_iter().map(|(pid, bytes)| Listed { pid, bytes: Some(bytes) }).collect();
    Shown { used: Some(used), processes: Some(processes.map(listed)), ..Shown::default() }
}

fn reading(devices: Vec<Shown>) -> DeviceReading {
    DeviceReading { began: Mono(1), ended: Mono(2), devices }
}

fn told(probe: &mut DeviceProbe, devices: Vec<Shown>) -> [Option<u64>; 4] {
    let reading = probe.tell(Mono(3), &reading(devices));
    [METRICS[0], METRICS[1], METRICS[2], METRICS[3]].map(|metric| reading.values.get(metric))
}

#[test]
fn devices_add_up_and_what_nobody_is_named_for_is_shown() {
    let mut probe = probe(2);
    let values = told(&mut probe, vec![shown(1_100, Ok(vec![(7, 900)])), shown(300, Ok(vec![(7, 200)]))]);
    assert_eq!(values, [Some(1_400), Some(1_100), Some(1_200), Some(100)]);
    assert_eq!(probe.meta().launch_basis, Some(Basis::Processes));
    let of_process = DeviceFigure { of: FigureOf::Process(7), metric: "device_bytes", value: 1_100 };
    assert!(probe.figures().contains(&of_process), "{:?}", probe.figures());
}

#[test]
fn where_the_owner_cannot_be_told_the_rise_stands_and_says_so() {
    let mut probe = probe(1);
    let values = told(&mut probe, vec![shown(1_100, Err("denied".to_owned()))]);
    assert_eq!(values, [Some(1_100), Some(1_000), Some(1_000), None]);
    assert_eq!(probe.meta().launch_basis, Some(Basis::Rise));
    assert_eq!(probe.meta().basis_reason.as_deref(), Some("device 0: denied"));
}

#[test]
fn one_that_vanishes_takes_the_sums_with_it_and_has_a_reason() {
    let mut probe = probe(2);
    let lost = Shown { reason: Some("lost".to_owned()), processes: Some(Err("lost".to_owned())), ..Shown::default() };
    let reading = probe.tell(Mono(3), &reading(vec![shown(1_100, Ok(vec![])), lost]));
    assert_eq!(reading.values.get(Metric::DeviceUsedBytes), None);
    assert!(
        reading.absences.contains(&(Metric::DeviceUsedBytes, "device 1: lost".to_owned())),
        "{:?}",
        reading.absences
    );
    let first = DeviceFigure { of: FigureOf::Device(0), metric: "used_bytes", value: 1_100 };
    assert!(probe.figures().contains(&first), "the other one goes on");
    assert_eq!(probe.devices()[1].reason.as_deref(), Some("lost"));
}

#[test]
fn a_list_that_was_not_asked_for_is_no_absence() {
    let mut probe = probe(1);
    let quick = Shown { used: Some(500), ..Shown::default() };
    let reading = probe.tell(Mono(3), &reading(vec![quick]));
    assert_eq!(reading.values.get(Metric::DeviceUsedBytes), Some(500));
    assert_eq!((reading.values.get(Metric::DeviceLaunchBytes), reading.absences), (None, vec![]));
}

#[test]
fn without_a_figure_from_before_there_is_no_rise() {
    let mut probe = probe(1);
    probe.before.clear();
    assert_eq!(told(&mut probe, vec![shown(500, Ok(vec![(7, 300)]))]), [Some(500), Some(300), None, None]);
    assert_eq!(told(&mut probe, vec![shown(500, Err("x".to_owned()))]), [Some(500), None, None, None]);
}

#[test]
fn a_host_without_devices_says_so_at_once() {
    let mut probe = DeviceProbe::begin(Place {
        nvml: Some("/nowhere/lib.so".into()),
        sys: Some("/nowhere".into()),
        ..Place::default()
    });
    assert_eq!(probe.baseline(Duration::from_secs(60)), None);
    let reading = probe.take(Mono::now(), Some(Duration::ZERO));
    assert_eq!(reading.absences.len(), METRICS.len());
    let (_, why) = &reading.absences[0];
    assert!(why.contains("/nowhere/lib.so") && why.contains("/nowhere/class/drm"), "{why}");
}
