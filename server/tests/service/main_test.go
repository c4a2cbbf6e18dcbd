package service_test

import (
	"testing"

	"millrace/server/internal/servertest"
)

func TestMain(m *testing.M) { servertest.CheckLeaks(m) }
