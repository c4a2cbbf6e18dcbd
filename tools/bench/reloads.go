package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"millrace/internal/onnxfile"
	"millrace/stream/buf"
	"millrace/workers"
)

// manyReloads is the number of reloads after which resident memory is compared with the memory after fewReloads.
const fewReloads, manyReloads = 10, 1000

// reloads measures the resident memory of the process after many reloads of an ONNX model of 1.2 MB.
func reloads(b *bench) (err error) {
	path := filepath.Join(b.dir, "reloads.onnx")
	if err := os.WriteFile(path, onnxfile.MLP(256, 512, 256, 2), 0o600); err != nil {
		return err
	}
	ctx := context.Background()
	models := workers.NewManager(workers.ManagerOptions{Memory: buf.NewPool(0), Log: slog.New(slog.DiscardHandler)})
	defer func() { err = errors.Join(err, models.Close(ctx)) }()
	row := Row{Name: "resident memory after 1,000 reloads of an ONNX model, against after 10", Unit: "bytes",
		Limit: "<= 1.2 x"}
	for i := 1; i <= manyReloads; i++ {
		if _, err := models.LoadConfig(ctx, workers.Config{Name: "m", Kind: "onnx", Source: path}.WithDefaults(),
			true); err != nil {
			return err
		}
		if err := models.Unload(ctx, "m", ""); err != nil {
			return err
		}
		to := map[int]*float64{fewReloads: &row.Bare, manyReloads: &row.Millrace}[i]
		if to == nil {
			continue
		}
		if *to, err = resident(true); err != nil {
			return err
		}
	}
	row.Ratio = row.Millrace / row.Bare
	row.Met = row.Ratio <= 1.2
	b.add(row)
	return nil
}
