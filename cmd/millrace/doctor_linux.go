package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// clock says whether the clock is synchronised, and quick to read.
func clock() diagnosis {
	const what = "clock"
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	name := strings.TrimSpace(string(source))
	switch name {
	case "hpet", "acpi_pm", "jiffies":
		return diagnosis{what, warns, "its source is " + name + ", which takes a microsecond or more to read",
			"see dmesg for why the kernel does not use tsc"}
	}
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		return healthyDiagnosis(what, "source %s; whether it is synchronised cannot be read: %v", name, err)
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		return diagnosis{what, warns,
			"is not synchronised by NTP: ages of frames with times of other machines are wrong",
			"timedatectl set-ntp true, or install chrony"}
	}
	return healthyDiagnosis(what, "synchronised, source %s", name)
}
