package service_test

import (
	"testing"

	"millrace/internal/servertest"
)

func TestMain(m *testing.M) { servertest.CheckLeaks(m) }
