package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/difference"
	"millrace/internal/recording"
)

const compareExamples = `  millrace compare monday.mill v2.mill
  millrace compare monday.mill v2.mill --iou 0.7 --fail-under 0.95
  millrace compare monday.mill v2.mill --json`

func compareCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "compare A.mill B.mill",
		Short: "Report how the results of two recordings differ, frame by frame",
		Long: `Compare the results of two recordings of the same frames, from millrace record and millrace replay --out.
Boxes are matched by class and overlap. Track ids agree when each id of the first recording is always the same id of the
second. All further outputs are compared number by number. Only frames answered in both recordings are compared; an error
counts as an answer without objects. No server is needed.`,
		Example: compareExamples,
		Args:    wrongUsage(cobra.ExactArgs(2)),
	}
	f := c.Flags()
	var (
		iou, tolerance, under float64
		asJSON                bool
	)
	f.Float64Var(&iou, "iou", 0.5, "the least overlap (intersection over union) of two boxes that match")
	f.Float64Var(&tolerance, "tolerance", 0.001, "two numbers of other outputs agree when they differ by at most this")
	f.Float64Var(&under, "fail-under", 0, "exit status 1 when the share of matched boxes is smaller; without boxes, "+
		"the share of frames that agree, or when a recording is damaged or cut short (never)")
	f.BoolVar(&asJSON, "json", false, "the report as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case !(iou > 0 && iou <= 1):
			return usagef("--iou: %v is not above 0 and at most 1", iou)
		case !(tolerance >= 0):
			return usagef("--tolerance: %v is not 0 or more", tolerance)
		case !(under >= 0 && under <= 1):
			return usagef("--fail-under: %v is not between 0 and 1", under)
		}
		var files [2]*recording.Reader
		for i, name := range args {
			r, err := recording.Open(name)
			if err != nil {
				return err
			}
			defer func() { _ = r.Close() }()
			files[i] = r
		}
		d, err := compareRecordings(files[0], files[1], difference.Options{IoU: iou, Tolerance: tolerance})
		if err != nil {
			return err
		}
		d.A.File, d.B.File = args[0], args[1]
		out := c.OutOrStdout()
		if asJSON {
			err = writeJSON(out, d)
		} else {
			err = d.print(out)
		}
		if err == nil && c.Flags().Changed("fail-under") {
			err = d.checkShare(under)
		}
		return err
	}
	return c
}

// checkShare returns an error if the matched share is too small.
func (d *comparison) checkShare(under float64) error {
	switch {
	case d.A.Cut != "":
		return fmt.Errorf("%s is damaged or was cut short, so that the share is not that of all frames "+
			"(--fail-under): %s", d.A.File, d.A.Cut)
	case d.B.Cut != "":
		return fmt.Errorf("%s is damaged or was cut short, so that the share is not that of all frames "+
			"(--fail-under): %s", d.B.File, d.B.Cut)
	case d.Share == nil:
		return errNothing
	case *d.Share < under:
		return fmt.Errorf("the matched share %.4f is under %v (--fail-under)", *d.Share, under)
	}
	return nil
}

// print writes the report as text: the two recordings side by side, then the
// differences.
func (d *comparison) print(w io.Writer) error {
	both := func(name string, of func(s *side) string) []string { return []string{name, of(&d.A), of(&d.B)} }
	rows := [][]string{
		{"", "A", "B"},
		both("recording", func(s *side) string { return s.File }),
		both("model", func(s *side) string { return strings.TrimSuffix(s.Model+" "+s.Version, " ") }),
		both("frames", func(s *side) string { return strconv.Itoa(s.Frames) }),
		both("results", func(s *side) string { return strconv.Itoa(s.Results) }),
		both("dropped", func(s *side) string { return countText(total(s.Drops), s.Drops) }),
		both("failed", func(s *side) string { return countText(total(s.Errors), s.Errors) }),
		both("lost", func(s *side) string { return strconv.Itoa(s.Lost) }),
		both("sent to result", func(s *side) string { return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", s.P50, s.P99) }),
		both("in the model", func(s *side) string {
			return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", s.RunP50, s.RunP99)
		}),
	}
	if d.A.Cut+d.B.Cut != "" {
		rows = append(rows, both("cut short", func(s *side) string { return s.Cut }))
	}
	if err := table(w, rows...); err != nil {
		return err
	}
	rows = [][]string{
		{""},
		{"same frames", fmt.Sprintf("%d, %d byte for byte; %d only in A, %d only in B", d.Frames, d.Identical, d.OnlyA,
			d.OnlyB)},
		{"compared", fmt.Sprintf("%d frames, answered in both; %d agree", d.Compared, d.Agree)},
	}
	if b := d.Boxes; b != nil {
		rows = append(rows,
			[]string{"boxes", fmt.Sprintf("%d in A, %d in B", b.A, b.B)},
			[]string{"matched", strconv.Itoa(b.Matched)},
			[]string{"class changed", strconv.Itoa(b.Changed)},
			[]string{"only in A", strconv.Itoa(b.OnlyA)},
			[]string{"only in B", strconv.Itoa(b.OnlyB)})
		if b.Matched > 0 {
			rows = append(rows,
				[]string{"mean IoU", fmt.Sprintf("%.4f", b.IoU)},
				[]string{"drift", fmt.Sprintf("mean %.2f px, max %.2f px", b.Drift, b.MaxDrift)},
				[]string{"score, B minus A", fmt.Sprintf("mean %+.4f, largest %+.4f", b.Score, b.MaxScore)})
		}
	}
	if t := d.Tracks; t != nil {
		rows = append(rows, []string{"track ids",
			fmt.Sprintf("%d boxes with ids in both, %d switched; %d with an id in one only", t.Compared, t.Switched,
				t.OneOnly)})
	}
	for _, t := range d.Tensors {
		text := fmt.Sprintf("max %.4g, mean %.4g apart in %d frames", t.Max, t.Mean, t.Frames)
		if t.Other > 0 {
			text += fmt.Sprintf("; not comparable in %d", t.Other)
		}
		rows = append(rows, []string{"output " + strconv.Quote(t.Name), text})
	}
	if len(d.Worst) > 0 {
		var list []string
		for _, f := range d.Worst {
			list = append(list, fmt.Sprintf("#%d at %.2f s (%d)", f.Seq, f.Seconds, f.Boxes))
		}
		rows = append(rows, []string{"most differ in", strings.Join(list, ", ")})
	}
	share := errNothing.Error()
	if d.Share != nil {
		share = fmt.Sprintf("%.2f %%", 100**d.Share)
	}
	return table(w, append(rows, []string{"matched share", share})...)
}

func total(by map[string]int) (n int) {
	for _, k := range by {
		n += k
	}
	return n
}
